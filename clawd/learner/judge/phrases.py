"""How users react to a response, as a table: what the rules judge reads by. A line of a pattern is a phrase.

English, and the commonest German. Every pattern is tried where a clause begins, after opening words such as "well," or
"but", never inside one. Sarcasm is not read: praise beside words of `TROUBLE` counts for nothing.
"""

from __future__ import annotations

from clawd.learner.judge.languages import LANGUAGES
from clawd.learner.judge.rule import HintFrom, Kind, Rule, any_of, words
from clawd.learner.judge.verdicts import VERDICTS
from clawd.learner.judge.vocabulary import ASK, BE, CHEER, END, FOR_WHOM, GOOD, IT, SHORTER, STYLE, VERY, YOU, YOURS
from clawd.learner.judge.wishes import WISHES

HARMLESS = any_of(
    r"\bscore\W{0,3}[+-]?\d",
    r"\bno " + words("problem worries thanks? thank_you need(?!_(?:to|for)) doubt way idea matter clue rush hurry"
    r" offen[cs]e longer one"
                      " kidding big_deal biggie probs stress pressure reason luck"),
    r"\bno,? (?:(?:that|this|it)'s|that is|we're|i'm|you're) (?:all|fine|ok(?:ay)?|good|alright|done)\b"
    r"(?:,? (?:thanks|thank you))?",
    r"\bno,? (?:thanks|thank you)\b",
    r"\bno\.? ?\d+",
    r"\bnot (?:too |so |half )?bad\b|\bnothing wrong\b|\bnot wrong\b",
    r"\bthank(?:s| you) (?:anyway|for nothing|in advance|god|goodness|to\b(?! you))|\bthanks? but no thanks\b",
    r"\bnever ?mind\b",
    r"\bdon't (?:worry|bother|mind|know|think(?! (?:so|that's|that is|this is|it's)\b)|get me wrong|forget"
    r"|you think)\b",
    r"\b(?:correct|stop) me if\b|\bif i'm (?:wrong|mistaken|not mistaken)\b",
    r"\bsorry,? (?:i meant|my mistake|my bad)\b",
    r"\b(?:oh|just|how|yeah,?) great\b|\bjust perfect\b|\byeah,? right\b|\bgreat job (?:breaking|ruining|deleting)\b",
    r"\bkein problem\b|\bnein,? danke\b|\bdanke (?:trotzdem|für nichts)\b|\bschon gut\b",
)  # fmt: skip
"""Phrases that look like a reaction and are none."""

TROUBLE = any_of(
    r"\b" + words("broken? broke fail(?:s|ed|ing)? crash(?:es|ed)? nothing_works? worse worst wrong useless stupid"
                   " idiot(?:ic)? ridiculous deleted erased wiped destroyed messed lost gone ruined"
                   " wtf hell damn crap shit"
                   " fuck\\w* ugh seriously nonsense rubbish garbage terrible horrible awful"
                   " as_always as_usual yet_another"
                   " another not_what kaputt leider wasted? annoy(?:s|ed|ing) joking kidding down again"
                   " fired lawyer refund slow thanks_for_nothing just_great just_perfect oh_great"
                   " overheated burnt stopped wall_of_text i_guess late crashed went_well"),
    r"\b(?:doesn't|don't|didn't|won't|can't|isn't|not) (?!complain|thank)\w+",
)  # fmt: skip
"""Words beside which praise may be meant the other way round."""

REQUEST = any_of(
    words("write tell give explain show list create make describe help translate summari[sz]e compare find"
           " suggest draft"
           " recommend draw generate continue add compose calculate compute solve convert define name rewrite"
           " plan pick"
           " choose imagine let's"),
    words("what how why when where who which can could would will is are do does did should i_need i_want i'd_like"),
    words("schreib erkl[äa]r was wie warum wann wo wer welche kannst k[öo]nntest"),
)  # fmt: skip
"""How a new request begins. What is told after it belongs to it: "Write a poem. Don't use rhymes." corrects"
" nothing."""

TRIED = any_of(
    r"(?:so )?i(?:'ve| have)? (?:just |now )?(?:tried|ran|read|tested|checked|followed|used|compiled|run|did"
    r"|sent|made)"
)
"""After this "it" means what the response proposed."""

PRAISE: tuple[Rule, ...] = (
    Rule("thanks", Kind.THANKS, any_of(
        r"(?:many |a thousand )?(?:thanks|thank you|thx|ty|cheers|much appreciated)\b",
        r"(?:i )?(?:really |do )?appreciate (?:it|this|that|your)\b",
        r"(?:vielen |herzlichen |tausend )?dank(?:e|esch[öo]n)?\b",
    )),
    Rule("praise", Kind.PRAISE, any_of(
        rf"{IT}{BE}{VERY} (?:\w+ly )?{GOOD}(?! to\b)",
        rf"{IT} (?:\w+ly |now )?(?:help(?:s|ed)|work(?:s|ed)|runs|fixed it|solve[sd] (?:it|my)|compile[sd]"
        rf"|cleared)\b",
        rf"{IT} (?:\w+ly )?(?:did|does) (?:it|the (?:trick|job))\b",
        r"(?:das (?:hilft|hat geholfen|war's|passt|funktioniert)|genau (?:das|so|richtig)|sehr (?:gut|hilfreich))\b",
    ), about_it=True),
    Rule("praise", Kind.PRAISE, any_of(
        rf"what an?{VERY} {GOOD} \w+",
        r"(?:just|exactly|precisely) what i (?:need|want|asked|meant|was looking)",
        rf"(?:very |really |such an? )?{GOOD} (?:job|work|answer|explanation|one|reply|response|summary|catch"
        rf"|bot|stuff"
        r"|point|idea|advice)\b(?! to\b)",
        r"(?:well (?:done|said|put|explained)|(?:you )?nailed it|spot on|bravo|gut gemacht)\b",
        r"(?:i )?(?:really |just |absolutely )?(?:love|like|adore) (?:it|this|that|how you|the way you)\b",
        r"you rock\b",
        r"(?:you(?:'re| are)|du bist) (?:a |an |the |so |very |really )*"
        + words("best awesome amazing great genius legend star life_?saver helpful brilliant klasse super"),
        r"(?:so |very |really |extremely )?(?:helpful|useful)" + END,
        r"(?:much|way|far|so much|a lot) better\b",
        r"works (?:now|great|perfectly|fine|like a charm|beautifully)|works" + END,
        r"(?:now i (?:finally )?|i (?:finally |now )?(?!see" + END + r"))(?:understand|get it"
        r"|see)(?: it)?(?: now)?" + END,
        r"(?:10|ten) ?/ ?(?:10|ten)\b|a\+|\+1|100 ?%" + END,
        r"[👍👏🎉🙏💯🥳🤩😍❤]",
        r"(?:exactly(?: right| it| so)?|correct|precisely|bingo|bang on)" + END,
    )),
    Rule("praise", Kind.PRAISE, any_of(
        rf"{CHEER}(?: (?:stuff|indeed))?(?:{END}|(?= (?:thank|thx)))",
    ), ends_topic=True),
)  # fmt: skip

COMPLAINTS: tuple[Rule, ...] = (
    Rule("no", Kind.COMPLAINT, any_of(
        r"(?:no|nope|nah|nein)(?:,? (?:no|nope|nein))*(?:\s*[,.!:;–—-]|$| (?=(?:that|this|it|it's"
        r"|that's|i|you|not|das)\b))",
    ), HintFrom.REST, answers_question=True),
    Rule("wrong", Kind.COMPLAINT, any_of(
        rf"(?:{IT}{BE}|you(?:'re| are)|(?:all|still|just|completely|totally|simply|plain)){VERY} "
        + words("wrong incorrect inaccurate mistaken false untrue nonsense made_up off broken bad terrible"
                 " awful useless"
                 " garbage rubbish outdated worse ridiculous mess lie not_true not_correct"),
        r"(?:wrong|incorrect|falsch|nonsense|bullshit|rubbish|unsinn|quatsch)" + END,
        r"das (?:ist|war|stimmt) (?:leider |aber |so |immer noch )*(?:falsch|nicht\b)",
    ), HintFrom.REST, veto=True, about_it=True),
    Rule("not right", Kind.COMPLAINT, any_of(
        rf"{IT}(?:{BE}{VERY} not|(?: is| was| are)n't|'s not){VERY}"
        r" (?!(?:a |the |my )?(?:bad|problem|issue|fault|necessary|urgent|what)\b)\w+",
    ), HintFrom.REST, about_it=True),
    Rule("not what I asked", Kind.COMPLAINT, any_of(
        rf"(?:{IT}(?:{BE} not|(?: is| was)n't)|not){VERY} what i \w+(?: (?:for|in mind|to \w+))*",
        r"i (?:didn't|did not|never) (?:ask|want|request|say|mean)\b|nobody asked\b",
        r"das (?:habe|hatte|wollte|meinte) ich (?:so )?nicht\b|das war nicht meine frage",
    ), HintFrom.REST, veto=True),
    Rule("you didn't", Kind.COMPLAINT, any_of(
        YOU + r"(?:didn't|did not) (?!have to|need to|do anything)",
        YOU + words("haven't have_not forgot ignored? missed left_out failed"
                     " skipped"
                     " overlooked"),
    ), HintFrom.CLAUSE, veto=True),
    # These name no remedy; it may come after.
    Rule("you failed", Kind.COMPLAINT, any_of(
        YOU + words("misunderstood misread misinterpreted confused mixed_up repeat(?:ed)? contradict(?:ed)?"
                     " gave_me_the_wrong answered_the_wrong"),
        YOU + r"got (?:it|that|this|the|my)(?: \w+)? (?:wrong|backwards|mixed up|reversed|confused)",
        YOU + r"(?:made|make) (?:a|an|another|the same|some) (?:\w+ )?(?:mistake|error)",
        YOU + r"(?:keep \w+ing|don't (?:understand|listen|get it)|aren't (?:listening|answering|helping))",
        YOU + r"are(?:n't| not) (?:listening|answering|helping)",
        r"you (?:only|just) (?:gave|listed|answered|repeated|copied|named|showed|told)",
        r"you sound (?:like|so|too|as if)",
        r"why (?:do|are|did) you (?:keep|always|still|never|again|ignor\w+)",
    ), HintFrom.REST, veto=True),
    Rule("too much", Kind.COMPLAINT, any_of(
        rf"(?:(?:{IT}{BE}|you(?:'re| are)){VERY} |way |far |much |a (?:bit|little) |still |viel )?(?:too|zu) "
        r"(?:(?:much|many|viel)(?: (?:\w+ )?\w+)?" + END + r""
        r"|" + words("long short verbose wordy vague formal informal casual complicated complex"
                 " technical dry cold"
                 " generic detailed slow fast abstract simple simplistic chatty lang kurz"
                 " kompliziert f[öo]rmlich") + rf"(?:{END}|{FOR_WHOM}| (?:and|or|with|on|in|und)\b))",
    ), HintFrom.CLAUSE, about_it=True),
    Rule("doesn't work", Kind.COMPLAINT, any_of(
        rf"{IT} (?:still |just |really |also )*(?:doesn't|does not|didn't|did not|don't|won't|isn't"
        rf"|never) (?:even |\w+ly )*"
        + words("work help answer compile run make_sense make_any_sense match fit address explain do_(?:what|it|that)"
                 " solve fix rhyme add_up"),
        rf"{IT} makes? no sense",
        r"not (?:helpful|useful|correct|right|true|good enough)\b",
        r"das (?:funktioniert|hilft|geht) (?:so |leider |immer noch )*nicht",
    ), HintFrom.REST, about_it=True),
    Rule("has a fault", Kind.COMPLAINT, any_of(
        r"(?:the|that|this) \w+ (?:is|was|are|were) (?:wrong|incorrect|missing|out of date|outdated|made up)\b",
        r"(?:that|this) \w+ (?:doesn't|does not|don't) (?:exist|work|compile)\b",
        rf"{YOURS} (?:still |just |also )?"
        + words("throws raises crashes fails contradicts? ignores lacks misses breaks hangs is_missing"
                 " has_(?:a|an)_error"
                 " has_(?:a|an)_mistake has_(?:a|an)_bug gives_me_an_error gives_an_error"),
        "👎",
    ), HintFrom.REST),
    Rule("insult", Kind.COMPLAINT, any_of(
        r"(?:useless|terrible|awful|horrible|pathetic|ridiculous|garbage)" + END,
        r"what (?:an? )?" + words("load_of terrible horrible useless stupid awful pile_of waste joke"
        r" mess nonsense rubbish"
                                   " garbage on_earth the_hell the_fuck"),
        r"(?:did|have|can|do) you even\b",
        r"are you (?:stupid|kidding|deaf|serious|even)|is this a joke|what is this (?:nonsense|garbage|crap)",
        r"you(?:'re| are) (?:useless|stupid|an idiot|hopeless|terrible|no help)|you stupid\b",
    ), veto=True),
    Rule("I asked", Kind.COMPLAINT, any_of(
        r"(?:as )?i (?:already |just |clearly |explicitly |specifically |only |have already"
        r" )*(?:asked (?:you |about|how"
        r"|what|why|whether|if|which|when|where)|told you)(?! (?:my|him|her|them)\b)",
        r"(?:as )?i (?:already |just |clearly |explicitly |specifically |only |have already )+asked for\b",
        r"i asked for (?:an?|one|two|three|four|five|ten) (?!raise|refund|discount|break|divorce|day|pay)\w+" + END,
        r"(?:like |as )?i (?:already |just |clearly |explicitly |specifically |only )*said "
        r"(?!(?:hello|hi|hey|yes|goodbye|bye|that i|to (?:my|him|her|them|the))\b)",
        r"(?:didn't i|haven't i|did i not|how (?:often|many times)) .{0,20}(?:say|said|tell|told|ask|mention)",
    ), HintFrom.CLAUSE),
    Rule("I meant", Kind.COMPLAINT, any_of(
        r"i (?:meant|mean|was (?:asking|talking) about|want(?:ed)?|need(?:ed)?|asked for) [^.?!\n]{1,80}?,? "
        r"(?:not|instead of)\b",
    ), HintFrom.CLAUSE),
    Rule("again", Kind.COMPLAINT, any_of(r"(?:once )?again\s*[,:–—-]", r"noch ?mal[,:]"), HintFrom.REST),
    Rule("try again", Kind.COMPLAINT, any_of(
        r"(?:please )?(?:fix (?:it|this|that)|try (?:it |that )?(?:once )?(?:again|harder)|redo (?:it|this|that)"
        r"|do (?:it|that) (?:again|over))\b",
    )),
    Rule("actually", Kind.COMPLAINT, any_of(
        rf"(?:well,? )?actually,? (?:it|that|they|he|she|there)(?:'s|'re| is| was| were| has| had) (?!{GOOD})",
    ), HintFrom.CLAUSE),
)  # fmt: skip

DIRECTIVES: tuple[Rule, ...] = (
    Rule("from now on", Kind.DIRECTIVE, any_of(
        r"(?:for |the )?next time(?! (?:i|we|he|she|they)\b)|from now on|in (?:the )?future,|going forward"
        r"|for the next (?:ones?|few|answers?|repl(?:y|ies)),? (?!let's|question|we\b|i\b)",
        r"for (?:the )?future(?: (?:answers|replies))?\b|in your (?:next|future) (?:answers?|repl(?:y|ies))",
        r"ab jetzt|k[üu]nftig|n[äa]chstes mal",
        r"[^.?!\n]{3,120}\b(?:next time|from now on|in future|in the future|going forward)[\s,]*(?:please)?$",
    ), HintFrom.CLAUSE, standing=True),
    Rule("don't", Kind.DIRECTIVE, any_of(
        r"(?:please )?(?:don't|do not|stop|never|avoid|quit|bitte nicht|(?:could|can|would) you"
        r" (?:please )?(?:stop|avoid"
        r"|not)) (?:(?:ever|always|just|keep) )*"
        r"(?!(?:by|words|at|the|there|here|it|that|this|you|i|we|buy|tell (?:anyone|anybody|him|her|them|my))\b)\w+",
        rf"(?:no (?:more )?|without (?:the |any )?|(?:drop|skip|lose|cut|leave out) the |enough with the "
        rf"|less of the )"
        rf"(?:\w+ )?{STYLE}",
        r"keine? (?:\w+ )?(?:listen?|emojis?|aufz[äa]hlung\w*|tabellen?|floskeln|ausrufezeichen)\b",
    ), HintFrom.CLAUSE),
    Rule("style", Kind.DIRECTIVE, any_of(
        rf"{ASK}(?:a (?:bit|little) |much |even |be |sound |make (?:it|this|that|them) )*(?:{SHORTER}(?!"
        rf" than)|(?:more|less|fewer)"
        rf" {STYLE}|(?<!and )(?:concise|brief|specific|kurz)" + END + ")",
        rf"{ASK}(?:keep|make) (?:(?:it|this|that)(?! an? )|them|things|your (?:answers?|repl(?:y|ies)|sentences|tone)"
        r"|the (?:answers?|repl(?:y|ies)|sentences|tone)|to the)\b",
        rf"{ASK}(?:answer|reply|respond|speak|talk|write|say|phrase|put|format|explain|do|give|rewrite"
        rf"|rephrase|summari[sz]e)"
        r"(?: (?:me|it|this|that|to me|everything|the answer|your answers?))* (?:in|with|without|like"
        r"|using|as|more|less"
        r"|only)\b(?<!give me more)(?! (?:\w+ ){1,3}(?:how|what|why|who|when|where)\b)(?![^\n]*:)",
        rf"{ASK}(?:shorten|simplify|rephrase|condense) (?:it|this|that|your)\b(?! \w+:)",
        r"add (?:some|a bit of|a little|more) (?:\w+ )?" + STYLE,
        r"(?:bitte )?(?:antworte|schreib|sprich|rede)\w* (?:bitte |mir )?(?:auf|in|ohne|mit|k[üu]rzer)\b",
        r"mach\w* (?:es|das) (?:bitte )?(?:k[üu]rzer|einfacher|l[äa]nger)",
        r"bitte (?:auf|in (?:einem|zwei|wenigen)|ohne|k[üu]rzer)\b",
    ), HintFrom.CLAUSE),
    Rule("please do", Kind.DIRECTIVE, any_of(
        r"please (?:keep|be(?! quiet| careful| back| on time)|include|always|never|call me|address me|stick to"
        r"|start|end|limit|skip"
        r"|remember|format|begin"
        r"|refrain|explain it)\b",
        r"always " + words("answer use start end include say write give show put call address add"
        r" cite explain ask check"
                            " begin keep"),
        r"(?:(?:can|could|would|will) you )?(?:please )?use (?!(?:this|that|my|these)\b)"
        r"(?![^.?!\n]*(?:\b(?:below|above|following)\b| to \w))[^.?!\n:]{1,60}$",
        r"(?:please )?(?:leave (?:out|off)|omit|skip) (?!to\b|ahead\b)\w+",
        r"(?:please )?(?:call|address) me (?!later|back|tomorrow|when)\w+(?! is\b)(?=\W|$)",
        r"(?:maybe|perhaps) (?:you (?:could|should)|try)\b",
        r"you (?:should|need to"
        r"|must) " + words("have(?!_seen) always also at_least rather be use say start keep give write"),
    ), HintFrom.CLAUSE),
    Rule("preference", Kind.DIRECTIVE, any_of(
        r"i(?:'d| would) (?:much |really )?like (?:it|you|your|shorter|the (?:answers?|repl\w+))\b",
        r"i (?:would )?(?:like it (?:better|more)|hate it when|want you to|need you to|wish"
        r" you(?! (?:a|all|good|the|luck|happy|merry)\b)|expect you to)\b",
        rf"i (?:hate|dislike|can't stand|don't like|do not like|don't want|don't need) (?:\w+ ){{0,3}}?{STYLE}",
        r"i (?:don't|do not) (?:like|want|need|care for) (?:(?:a|an|the|any|all|so many|your) )*(?:it when|it"
        r"|that|this"
        r"|these|lectures?|explanations?|answers?|repl(?:y|ies)|tone)\b",
        r"i (?:only |just )?(?:need|want|wanted) (?:the|a) (?:short|long|brief|simple|quick|full)\w*"
        r" (?:version|answer|one"
        r"|summary)",
        r"(?:it|that) (?:would|might|'d) be (?:\w+ )?" + words("great nice nicer better good helpful easier cool")
        + r" if (?:you|it|the|your)\b",
        rf"a (?:bit|little) (?:{SHORTER}|(?:more|less) {STYLE}) would be",
    ), HintFrom.CLAUSE, answers_question=True),
)  # fmt: skip

RULES = (*PRAISE, *COMPLAINTS, *DIRECTIVES, *WISHES, *VERDICTS, *LANGUAGES)
