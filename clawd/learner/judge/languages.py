"""The commonest reactions in German, French, Spanish and Italian, by the constructions of `wishes` and `verdicts`.

Few, and only what can hardly be about anything else. A line of a pattern is a phrase.
"""

from __future__ import annotations

from clawd.learner.judge.rule import HintFrom, Kind, Rule, any_of, words
from clawd.learner.judge.vocabulary import END

DE_TEXT = (
    r"(?:text|details?|beispiele?n?|listen?|emojis?|quellen?|fachbegriffe?n?|fremdw[öo]rter\w*|anrede"
    r"|zusammenfassung|einleitung"
    r"|[üu]berschrift(?:en)?|humor|w[äa]rme|aufz[äa]hlung\w*|stichpunkte?n?|tabellen?|erkl[äa]rung(?:en)?"
    r"|antworten?|s[äa]tze?n?"
    r"|w[öo]rter|gefasel|floskeln|kommentare?|code)\b"
)
DE_SOFTER = words(
    "k[üu]rzer einfacher freundlicher lockerer genauer ausf[üu]hrlicher h[öo]flicher f[öo]rmlicher konkreter"
    " w[äa]rmer"
    " pers[öo]nlicher verst[äa]ndlicher lustiger deutlicher l[äa]nger direkter nat[üu]rlicher sachlicher netter"
)
DE_LOOKS = words(
    "lang kurz f[öo]rmlich kompliziert technisch formell steif trocken k[üu]hl kalt allgemein ungenau umst[äa]ndlich"
    " ausf[üu]hrlich schwer knapp unpers[öo]nlich schwierig oberfl[äa]chlich viel wenig abstrakt locker blumig"
)
DE_BITTE = r"(?:,? bitte|,? danke)?"
FR_TEXT = (
    r"(?:texte|d[ée]tails?|exemples?|listes?|[ée]mojis?|sources?|jargon|tableaux?|phrases?|mots|bla-?bla|humour"
    r"|r[ée]ponses?)\b"
)
FR_LOOKS = (
    r"(?:long(?:ue)?|courte?|formel(?:le)?|compliqu[ée]e?|technique|vague|froide?|s[èe]che?|difficile|sec"
    r"|familier|abstraite?|simple"
    r"|pr[ée]cise?|claire?|chaleureu(?:x|se)|simplement|clairement|naturel(?:le)?|dr[ôo]le|poli|polie|concise?)\b"
)
FR_PLEASE = r"(?:,? (?:s'il (?:te|vous) pla[îi]t|stp|svp|merci))?"
ES_TEXT = (
    r"(?:texto|detalles?|ejemplos?|listas?|emojis?|fuentes?|jerga|tablas?|frases?|palabras|relleno|humor"
    r"|respuestas?)\b"
)
ES_LOOKS = (
    r"(?:larg[oa]s?|cort[oa]s?|formal(?:es)?|complicad[oa]s?|t[ée]cnic[oa]s?|vag[oa]s?|fr[íi][oa]s?|dif[íi]cil"
    r"|sec[oa]|informal"
    r"|sencill[oa]s?|simple|claro|breve|amable|natural|detallad[oa]|preciso|c[áa]lid[oa]|cercano)\b"
)
ES_PLEASE = r"(?:,? (?:por favor|gracias))?"

LANGUAGES: tuple[Rule, ...] = (
    Rule("thanks", Kind.THANKS, any_of(
        r"(?:merci|muchas gracias|mil gracias|gracias|grazie|obrigad[oa]|dank je)\b",
    )),
    Rule("praise", Kind.PRAISE, any_of(
        rf"(?:das )?(?:ist |war |klingt )?(?:ja |echt |wirklich |sehr |so |richtig |genau |einfach )*(?:super"
        rf"|perfekt|toll|klasse"
        rf"|spitze|prima|gro(?:ß|ss)artig|wunderbar|genial|sch[öo]n|hilfreich|richtig so){END}",
        r"das (?:ist|war) (?:sehr |wirklich |echt |genau )+(?:hilfreich|gut|sch[öo]n|richtig|was)\b",
        r"genau (?:so|das|richtig)(?: (?:wollte|habe|hatte|brauche|wie|was) \w+)?\b",
        rf"(?:das )?gef[äa]llt mir(?: (?:sehr|gut|so|besser))*{END}",
        r"das hat (?:mir )?(?:sehr |wirklich |echt |total )*geholfen\b",
        rf"(?:viel |schon |deutlich |so )*besser{END}|gut (?:gemacht|erkl[äa]rt|geschrieben)\b|sehr (?:sch[öo]n"
        rf"|gut|hilfreich|nett)\b",
        rf"(?:c'est )?(?:tr[èe]s |vraiment |absolument |tout simplement )*(?:parfait|g[ée]nial|super|excellent"
        rf"|magnifique|bien|utile"
        rf"|clair|bravo|impeccable)e?{END}",
        r"exactement ce (?:que|qu'il|dont)\b|j'(?:adore|aime (?:bien|beaucoup)(?! (?:plus|mieux)))\b"
        r"|[çc]a marche" + END,
        rf"(?:es |est[áa] )?(?:muy |realmente |simplemente )*(?:perfecto|excelente|genial|estupendo"
        rf"|fant[áa]stico|[úu]til|bien"
        rf"|magn[íi]fico|claro as[íi]){END}",
        r"(?:me encanta|exactamente lo que|justo lo que|me (?:ha )?ayud(?:[óo]|ado) mucho)\b|perfetto|ottimo"
        r"|benissimo",
    )),
    Rule("wrong", Kind.COMPLAINT, any_of(
        rf"(?:das )?(?:stimmt|passt) (?:so |leider |aber |immer noch )*nicht{END}",
        r"das (?:gef[äa]llt mir|hilft mir|verstehe ich|meinte ich|wollte ich|war|ist) (?:so |leider |aber |gar "
        r"|[üu]berhaupt "
        r"|wirklich |mir |nicht )*nicht\b",
        rf"(?:leider nicht|naja|na ja|(?:das )?(?:bringt|hilft|nützt) mir (?:nichts|nicht)|nicht (?:gut|richtig"
        rf"|hilfreich|ganz|wirklich|so toll)){END}",
        r"das (?:klingt|liest sich) (?:\w+ )?wie (?:ein|eine|von)\b (?:roboter|maschine|werbung|\w*anwalt"
        r"|automat|beh[öo]rde)\w*",
        rf"(?:non,? )?(?:ce n'est|c'est) pas (?:[çc]a|correct|juste|bon|vrai|ce que)\b|c'est (?:faux|incorrect"
        rf"|nul){END}",
        rf"[çc]a ne (?:marche|va|fonctionne|m'aide) pas\b|je (?:ne comprends (?:pas|rien)"
        rf"|n'aime pas(?: [çc]a)?){END}",
        rf"(?:eso |esto )?no (?:tiene sentido|es (?:correcto|eso|cierto|lo que|verdad)|funciona|me gusta|sirve"
        rf"|me sirve|me ayuda)\b"
        rf"|no (?:lo )?entiendo(?: nada)?{END}|(?:eso )?est[áa] mal{END}|eso no es{END}",
    ), HintFrom.REST, answers_question=True),
    Rule("too much", Kind.COMPLAINT, any_of(
        rf"(?:das |es |der \w+ |die \w+ )?(?:(?:ist|war|klingt) )?(?:mir |leider |etwas |ein bisschen |viel "
        rf"|noch )*zu {DE_LOOKS}"
        rf"(?:{END}| f[üu]r\b| und\b)",
        rf"(?:hier |da |mir |es )?(?:fehlt|fehlen) (?:noch |mir |leider )*(?:ein|eine|einige|die|der|das"
        rf"|etwas) ?{DE_TEXT}",
        rf"(?:c'est |le texte est |la r[ée]ponse est )?(?:un peu |beaucoup |bien )?trop (?:de {FR_TEXT}|{FR_LOOKS})",
        rf"il (?:manque|faut) (?:un|une|des|plus de|le|la) ?{FR_TEXT}",
        rf"(?:es |est[áa] |el texto es |la respuesta es )?(?:un poco )?(?:demasiad[oa]s? |muy )(?:{ES_LOOKS}"
        rf"|{ES_TEXT})",
        rf"(?:le )?faltan? (?:un|una|unos|el|la|m[áa]s)? ?{ES_TEXT}|troppo (?:lungo|formale|breve|complicato)\b",
    ), HintFrom.CLAUSE, answers_question=True),
    Rule("wish", Kind.DIRECTIVE, any_of(
        rf"(?:bitte )?(?:etwas |ein bisschen |viel |noch |mach\w* es |lieber )*{DE_SOFTER}{DE_BITTE}{END}",
        rf"geht (?:das|es) (?:auch )?(?:etwas )?{DE_SOFTER}|bitte (?:etwas|ein bisschen|viel) (?:mehr"
        rf"|weniger) \w+{END}",
        rf"(?:bitte )?(?:etwas |viel |ein bisschen )?(?:mehr|weniger) {DE_TEXT}",
        rf"(?:bitte |lieber )?(?:ohne|mit|keine?) (?:\w+ )?{DE_TEXT}{DE_BITTE}{END}|(?:bitte )?auf (?:deutsch"
        rf"|englisch){DE_BITTE}{END}",
        rf"(?:bitte )?nicht so (?:\w+ )?(?:{DE_LOOKS}|viele? {DE_TEXT})",
        rf"(?:kannst|k[öo]nntest|k[öo]nnen|k[öo]nnten) (?:du|sie) (?:das|es|dich) (?:bitte |vielleicht |auch "
        rf"|mal |noch |etwas |ein"
        rf" bisschen )*(?:{DE_SOFTER}|in (?:einfachen?|einem satz|eigenen)|(?:ohne|als|mit) {DE_TEXT})",
        r"(?:kannst|k[öo]nntest) du (?:bitte )?(?:einfachere|k[üu]rzere|weniger|mehr|freundlichere) \w+",
        rf"(?:fasse?|halte?) dich (?:bitte )?(?:etwas |viel )?(?:k[üu]rzer|kurz)\b|erkl[äa]re? es (?:bitte "
        rf"|mir )*(?:{DE_SOFTER})",
        rf"ich (?:h[äa]tte|m[öo]chte|will|w[üu]nsche mir|wollte|bevorzuge) (?:gerne? |lieber |nur "
        rf"|bitte )*(?:\w+ ){{0,2}}?"
        rf"(?:{DE_TEXT}|{DE_SOFTER})",
        r"mach\w* es (?:bitte )?(?:etwas )?\w+er\b|schreib\w* (?:bitte )?nicht so\b|duz\w* mich\b"
        r"|[çc]a manque de\b|le falta\b",
        rf"ich (?:mag|brauche|will) (?:keine?|nicht so viele?) {DE_TEXT}",
        rf"(?:un peu |beaucoup )?(?:plus|moins) (?:{FR_LOOKS}|de {FR_TEXT}){FR_PLEASE}{END}",
        rf"(?:sans|avec des?) {FR_TEXT}{FR_PLEASE}{END}|en (?:fran[çc]ais|anglais|une phrase){FR_PLEASE}{END}",
        r"(?:peux-tu|pouvez-vous|pourrais-tu|tu peux|pourriez-vous) (?:le |la )?(?:faire|[ée]crire|dire"
        r"|expliquer|[êe]tre) (?:[çc]a )?"
        r"(?:un peu )?(?:plus|moins) \w+",
        rf"(?:fais|fai(?:tes)|explique|[ée]cris|r[ée]ponds)(?: \w+)? (?:plus|moins) {FR_LOOKS}",
        rf"je (?:pr[ée]f[èe]re(?:rais)?|voudrais|veux|souhaite(?:rais)?|n'aime pas) (?:quelque chose de "
        rf"|que tu |une? |les |des )*"
        rf"(?:(?:plus|moins) \w+|{FR_TEXT}{END}|r[ée]pondes)",
        r"la prochaine fois\b|dor[ée]navant\b|à l'avenir\b|la pr[óo]xima vez\b|de ahora en adelante\b"
        r"|a partir de ahora\b"
        r"|en el futuro,|la prossima volta\b",
        rf"(?:un poco )?(?:m[áa]s|menos) (?:{ES_LOOKS}|{ES_TEXT}){ES_PLEASE}{END}",
        rf"(?:sin|con) {ES_TEXT}{ES_PLEASE}{END}|en (?:espa[ñn]ol|ingl[ée]s|una frase){ES_PLEASE}{END}",
        r"(?:puedes|podr[íi]as|puede) (?:hacerlo|escribirlo|decirlo|explicarlo|ser) (?:un poco )?(?:m[áa]s"
        r"|menos) \w+",
        rf"(?:prefiero|preferir[íi]a|quisiera|quiero|me gustar[íi]a) (?:(?:que (?:me )?respondas|algo|una?|las"
        rf"|los) )*(?:con |en )?(?:una? )?"
        rf"(?:(?:m[áa]s|menos) {ES_LOOKS}|{ES_TEXT}{END})",
        rf"pi[ùu] (?:breve|corto|semplice|chiaro){END}",
    ), HintFrom.CLAUSE, answers_question=True),
)  # fmt: skip
