"""Words that the rules' phrases are put together from: how a text may be, what it is made of, how people name it."""

from __future__ import annotations

from clawd.learner.judge.rule import words

PART = (
    r"(?:last |first |second )?(?:answer|reply|response|code|result|explanation|summary|text"
    r"|translation|version|one|list"
    r"|solution|output|example|tone|style)"
)
IT = rf"(?:th(?:at|is|ese|ose)|it|(?:that|this|the|your) {PART})"
YOURS = rf"(?:that|this|your \w+|(?:that|this|the) {PART}(?: you \w+(?: me)?)?|what you \w+)"
BE = r"(?:'s|'re| is| are| was| were| looks?| sounds?| feels?| seems?| reads?)"
VERY = (
    r"(?: (?:so|very|really|just|quite|pretty|absolutely|exactly|truly|super|such an?|a|an|the|much|way|far|all|still"
    r"|simply|completely|totally|plain|flat out|even|also|already|clearly|obviously|indeed|actually))*"
)
YOU = (
    r"(?:and |but )?you(?:'ve| have)? "
    r"(?:(?:still|just|completely|totally|again|only|clearly|simply|obviously|also|even) )*"
)
ASK = r"(?:please |just |always |(?:can|could|would|will) you (?:please |just )?)*"
STYLE = words(
    "details? detailed concise(?:ly)? brief(?:ly)? short(?:er)? long(?:er)? formal(?:ly)? informal casual(?:ly)?"
    " friendly polite(?:ly)? direct specific concrete precise simple simply technical verbose wordy chatty"
    " serious warm"
    " enthusiastic personal warmth playful jargon words text fluff filler context structured? humou?r natural careful"
    " emojis? markdown bold headings? bullets? bullet_points lists? tables? comments? exclamation_marks examples?"
    " encouraging numbered_lists? apologies disclaimers? intros? introductions? preambles? pleasantries caps smileys?"
)
GOOD = words(
    "great good perfect excellent amazing awesome brilliant fantastic wonderful helpful useful nice"
    " lovely spot_on clear"
    " clever fun funny beautiful superb best right correct impressive gold it kind_of"
    " what_i_(?:need|want|asked|meant|was_looking)"
)
CHEER = r"(?:(?:very|really|so) )?" + words(
    "good perfect(?:ly)? excellent great amazing awesome brilliant fantastic wonderful superb lovely"
    " beautiful nice cool sweet"
    " yay impressive perfekt super klasse toll prima wunderbar spitze"
)
SHORTER = words("shorter longer simpler briefer warmer clearer kinder friendlier kürzer länger einfacher genauer")
END = r"(?=\s*(?:[!.,;:)–—-]|$))"

PARTS = words(
    "answers? repl(?:y|ies) text explanations? tone style wording voice titles? headlines? headings?"
    " intro(?:duction)?s?"
    " endings? conclusions? opening greetings? salutation sign_?off closing_line summar(?:y|ies) overview"
    " abstract tables?"
    r" (?:\w+_)?lists? bullets? bullet_points? steps? examples? details? sources? links? references? citations?"
    r" units?"
    " figures code commands? snippets? comments? docstrings? type_hints tests? sentences? paragraphs? words? lines?"
    " adjectives adverbs emojis? jokes? humou?r warmth personality emotions? empathy feeling enthusiasm colou?r"
    " energy"
    " jargon slang fluff filler waffle small_?talk chit-?chat padding background context reasoning working"
    " next_steps?"
    " diagrams? pictures? images? dates? call_to_action personal_touch structure numbers? quotes? exclamation_marks?"
    " semicolons? commas markdown bold theory practice text_wall walls?_of_text disclaimers? caveats? warnings?"
    " flattery compliments? praise apologies pleasantries preambles? lectures? lecturing baby_talk passive_voice"
    " abbreviations acronyms technical_terms buzzwords short_version long_version advice facts prose dialogue"
)
"""What a text is made of: wished for, missed or unwanted. What else may be missing ("milk") is not about the"
" response."""

LOOKS = (
    r"(?:(?:in)?formal|informal|long(?:-?winded)?|short|brief|terse|curt|stiff|dry|cold|warm|cool|distant|impersonal"
    r"|vague|general|generic|broad|abstract|academic|technical|complex|complicated|difficult|hard|heavy|dense"
    r"|advanced"
    r"|basic|simple|simplistic|superficial|shallow|wordy|verbose|repetitive|boring|dull|bland|flat|flowery"
    r"|poetic|cheesy"
    r"|corny|kitschy|sugary|sales-?y|pushy|corporate|bureaucratic|robotic|mechanical|artificial|stilted|wooden|harsh"
    r"|blunt|rude|strict|severe|aggressive|negative|cheerful|enthusiastic|childish|silly|jokey|casual|chatty|preachy"
    r"|patroni[sz]ing|condescending|dramatic|emotional|serious|slow|detailed|theoretical|confusing|rough|rambling)"
)
"""How a text may be too much so."""

WANTED = (
    r"(?:specific|precise|concrete|clear|direct|honest|polite|friendly|warm|kind|gentle|personal|human|natural|casual"
    r"|formal|informal|concise|brief|short|simple|simply|detailed|fun|funny|lively|creative|encouraging|patient"
    r"|positive"
    r"|critical|neutral|objective|professional|practical|helpful|readable|enthusiastic|playful|serious|sensitive"
    r"|careful|emotional|structured|matter-of-fact|to the point|explicit|supportive|conversational|cheerful)"
)
"""How a text may be wished to be."""

SOFTER = words(
    "shorter longer simpler briefer warmer clearer kinder friendlier easier plainer softer gentler nicer looser"
    " lighter"
    " tighter crisper snappier punchier funnier livelier cleverer calmer stronger bolder smoother slower cosier"
    " better(?=_structured|_organi[sz]ed)"
)
"""Comparatives of manner."""

SLIGHTLY = (
    r"(?:(?:just |maybe |perhaps )?(?:a (?:bit|little|little bit|touch|tad|lot)|much|even|way|far|slightly|still) )"
)
COMPARED = (
    rf"{SLIGHTLY}?(?:{SOFTER}|(?:more|less|fewer) (?:{LOOKS}|{WANTED}|{PARTS}|{STYLE})(?!\w)"
    r"|(?:more|less) like (?:an?|the)\b)"
)
"""What wishes compare with: "a bit warmer", "fewer lists", "more like a letter"."""

PLEASE = r"(?:,? (?:please|pls|plz|thanks|this time|next time|instead|for me|tbh|in (?:here|this|future)))*"
FOR_WHOM = (
    r"(?: for (?:me|us|my|our|a|an|the|this|that|kids|children|beginners|adults)\b| to (?:read|follow|understand)\b)"
)
STOP = r"(?=\s*(?:[!.,;)–—-]|$))"
"""As `END`, but for a colon: "in French: …" begins a task."""
