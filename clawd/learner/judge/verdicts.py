"""Praise and complaints that say what a response did, how it reads or how the user feels about it.

What could be said of the world as well ("boring", "I'm happy") counts where the clause says nothing else, or with "it".
A line of a pattern is a phrase.
"""

from __future__ import annotations

from clawd.learner.judge.rule import HintFrom, Kind, Rule, any_of, words
from clawd.learner.judge.vocabulary import BE, END, IT, LOOKS, PARTS, VERY

BAD = words(
    "boring dull bland generic robotic stilted wooden condescending patroni[sz]ing rude unhelpful disappointing"
    " cheesy"
    " lame weak confusing misleading impersonal sloppy messy unreadable unclear fake harsh preachy salesy"
    " unfriendly off_topic overkill way_off beside_the_point not_it hard_to_(?:read|follow|understand)"
    " all_over_the_place"
    " inappropriate insulting offensive tone-?deaf cold_and_\\w+ useless superficial repetitive"
)
MACHINE = (
    r"(?:(?:an? |some |the )?(?:\w+ )?(?:robot|machine|bot|computer|ai|chat ?gpt|manual|textbook|advert|ad"
    r"|advertisement"
    r"|commercial|brochure|press release|legal document|contract|lawyer|salesman|salesperson|politician|form letter"
    r"|template|wikipedia|machine translation|google translate|lecture|sermon|bureaucrat|encyclop(?:a?e)dia)\b"
    r"|(?:it was|you) (?:copied|written by|wrote it in|copied it))"
)
PEOPLE = (
    r"(?:(?:my|our|the) (?:\w+ )?(?:kids?|children|students?|pupils?|class|boss|manager|wife|husband|partner"
    r"|team|client"
    r"|customers?|friends?|mum|mom|dad|colleagues?|son|daughter|readers?)|everyone|everybody)"
)
PLEASED = words("happy pleased satisfied impressed delighted thrilled amazed glad")
FINE = words(
    "hilarious gorgeous stunning elegant neat fabulous touching sweet kind perfect(?:ly)? just_right right_on spot_on"
    " top_notch first_class so_much_clearer much_clearer clearer just_what exactly_(?:it|how|right|the)"
    " very_kind good_to_know"
    " how_i_(?:wanted|like|imagined) the_one the_best the_spirit well_(?:done|put|said|written|explained)"
    " useful better"
    " beautifully_\\w+ exactly_what just_what super_\\w+ so_(?:good|sweet|helpful|kind)"
)
REALLY = r"(?:(?:very|really|so|super|absolutely|just|extremely|pretty|quite|simply|totally) )*"

VERDICTS: tuple[Rule, ...] = (
    Rule("praise", Kind.PRAISE, any_of(
        rf"{IT}{BE}{VERY} (?:{FINE}|well[ -]\w+(?:ed|en|ten)\b)",
        rf"(?:the|your) (?:\w+ )?{PARTS}{BE}{VERY} (?:just right|perfect|great|spot on|excellent|lovely|wonderful)\b",
        rf"{IT} (?:really |just |has |totally |finally )*(?:made (?:me (?:laugh|smile)|my day|sense)"
        rf"|makes (?:perfect |total "
        rf"|a lot of )?sense|(?:saved|saves) (?:me|my|us)|(?:fixed|solved|resolved|did|cleared|nailed|answers"
        rf"|answered) "
        rf"(?:it|that|my|the|everything)|cleared|clears (?:it|everything|things) up|helped|did (?:it|the))\b",
    ), about_it=True),
    Rule("praise", Kind.PRAISE, any_of(
        rf"(?:it |that )?(?:fixed|solved|nailed) (?:it|that){END}|(?:problem |issue )?(?:solved|fixed|sorted){END}"
        rf"|worked(?: \w+ly)?(?:{END}| on the first| first time| like| great)|works (?:like a|as)\b",
        rf"(?:now |finally,? )?(?:it|this|that)?(?: all| finally)? ?makes (?:perfect |total "
        rf"|so much )?sense(?: now)?{END}",
        r"(?:ah |aha )?now i (?:finally )?(?:get|understand|see)(?: (?:it|how|why))?\b",
        r"finally (?:someone|somebody|an? (?:\w+ )?(?:answer|explanation|text|response)|i (?:get|understand))\b",
        r"(?:made|makes) (?:me (?:laugh|smile)|my day)\b",
        r"you(?:'ve| have| really| just)? (?:saved (?:my|me|us)\b|made (?:my (?:day|week)|me (?:laugh|smile|happy)))",
        r"you(?:'ve| have)? (?:explained|put|said|did|wrote) (?:it|that|this)? ?(?:really |very |so )?(?:well"
        r"|a great|great"
        r"|beautifully|perfectly|a good|an excellent)\b",
        rf"{PEOPLE} (?:\w+ )?(?:loved|liked|enjoyed|was impressed|were impressed|(?:will|would|is going to"
        rf"|are going to)"
        r" (?:love|like|enjoy|be (?:happy|thrilled|impressed|so happy))|loves|love|adored|was thrilled"
        r"|were thrilled) (?:with |by )?(?:it|this|that"
        r"|the (?:story|poem|version|idea|text|result|answer)s?)\b",
        rf"(?:i )?(?:really |absolutely |just )*(?:loved|love|liked|like|enjoyed|enjoy|adore) (?:it|this|that"
        rf"|how (?:you|this"
        rf"|short|clear)|the way (?:you|this)|your|reading (?:it|this|that)|the (?:\w+ )?{PARTS}{END}"
        rf"|the idea{END})(?! when\b)(?! if\b)",
        r"i (?:really )?appreciate (?:the|how|your|it|that|this)\b",
        rf"i(?:'m| am) {REALLY}impressed{END}|(?:i(?:'m| am) )?{REALLY}{PLEASED}(?: with (?:it|this|that"
        rf"|the (?:result|answer|text)|your)\b)",
        r"(?:i )?(?:just |really )?learn(?:ed|t) (?:a lot|so much|something(?: new)?|a ton)(?: today"
        r"| from (?:this|that|it|you))?" + END,
        r"(?:i )?could(?:n't| not) (?:be (?:better|happier)|have (?:said|put|asked|done|written|wished))\b",
        r"(?:i )?can'?t complain\b|no complaints\b|nothing to (?:add|complain)\b",
        r"keep (?:it up|up the|doing (?:it|this|that)|(?:using|writing|answering) (?:this|like|that))\b",
        r"more (?:of (?:this|these|that)|like (?:this|these|that))\b",
        rf"(?:short|clear|crystal|simple|quick|sweet|funny|smart)(?: (?:and|but) \w+| clear){END}",
        rf"{REALLY}(?:well|nicely|beautifully|perfectly|brilliantly) (?:done|put|said|written|explained|phrased"
        rf"|played)\b",
        r"just right" + END + r"|top" + END + r"|can'?t thank you enough|(?:that's|that is) what i call\b"
        r"|you(?:'ve| have) been (?:so |very |a great |really )+"
        r"(?:help\w*|kind|patient)|(?:all )?(?:the )?tests? pass(?:es)?(?: now)?" + END + r""
        r"|(?:it )?compiles(?: and runs)?" + END + r"|all green(?: now)?\b"
        r"|this is (?:exactly )?the \w+ i (?:wanted|needed|asked|was)\b|that was (?:so |really |very )?(?:fast"
        r"|quick)(?: and \w+)?" + END + r"|top[- ]notch|first[- ]class|chef's kiss|hats off|kudos|chapeau"
        r"|right on\b|thumbs up|two thumbs|ten out of ten"
        r"|well played|good bot|tysm\b|ty\b|tks\b|five stars",
        rf"(?:that's|this is) (?:just |exactly |precisely )?(?:it|the one)(?: i \w+)?{END}",
        r"that(?:'s| is) (?:exactly )?(?:how|the way) i (?:wanted|like|imagined|meant)\b",
        rf"{REALLY}(?:better|hilarious|impressive|helpful|useful|brilliant|gorgeous|lovely|beautiful){END}",
        rf"(?:so|really|very|super|pretty) (?:good|nice|cool|great|clear|funny|sweet|kind){END}",
        rf"(?:good|great|nice|excellent|lovely|amazing|brilliant|clever|fantastic) (?:\w+ )?(?:{PARTS}|idea|tip"
        rf"|tips|thinking"
        rf"|call|suggestion|suggestions|poem|story|job|work)(?:{END}|,|\s+i\b)",
        r"exactly (?:what|how|like|as) i\b",
        r"(?:always|please always) (?:do|answer|write) (?:it )?(?:like|exactly like) (?:this|that)\b",
        r"(?:it )?help(?:s|ed)? (?:me )?(?:a lot|very much|so much|a ton|tons|loads)\b",
        r"❤️|💪|👌|🔥",
    )),
    Rule("reads badly", Kind.COMPLAINT, any_of(
        rf"{IT}{BE}{VERY}(?: (?:a bit|a little|rather|too|somewhat|overly))? {BAD}(?:{END}| for\b| to read\b)",
        rf"(?:{IT}|you|the (?:\w+ )?{PARTS}) ?(?:sounds?|reads?|feels?|looks?|seems?) (?:\w+ )?(?:like|as if"
        rf"|as though) {MACHINE}",
        rf"(?:sounds?|reads?|feels?) (?:\w+ )?like {MACHINE}",
        rf"{IT} (?:came|comes) across as (?:a bit |rather |very |quite |so )*(?:{BAD}|{LOOKS})",
        rf"(?:(?:so|really|very|kinda|a bit|rather|how|pretty|totally|completely|utterly) )*{BAD}{END}",
        rf"(?:meh|yikes|weak|lame|terrible|bleh|ew+|ouch|boo){END}",
        rf"(?:how|really|very|so|quite|a bit|pretty) (?:disappointing|rude|boring|sad a reply){END}",
    ), HintFrom.REST, about_it=True),
    Rule("not pleased", Kind.COMPLAINT, any_of(
        rf"i(?:'m| am) (?:really |very |so |a bit )*(?:not (?:\w+ )?{PLEASED}|unhappy|disappointed"
        rf"|not (?:\w+ )?convinced)"
        rf"(?:{END}| (?:with|by) (?:it|this|that|your|the (?:answer|result|text))\b)",
        rf"i (?:do not|don't) (?:really |actually |quite |particularly )?(?:like|love|buy|believe) (?:it|this"
        rf"|that|your \w+){END}",
        rf"(?:i )?(?:really )?(?:hate|dislike) (?:it|this|that){END}",
        rf"i (?:had )?expected (?:better|more)(?: from you)?{END}|i(?:'m| am) used to better",
        r"i (?:can't|cannot) (?:use|work with|send|accept) (?:this|that|it)\b",
        rf"{PEOPLE} (?:\w+ )?(?:hated|disliked|(?:didn't|did not|couldn't|won't|doesn't) (?:\w+ )?(?:like|get"
        rf"|understand|follow))"
        r" (?:it|this|that)\b",
        rf"not (?:a fan|my (?:style|thing|taste|cup of tea)|impressed|convinced|happy|satisfied){END}",
        rf"not (?:quite|really|exactly|great|good|ideal|there yet|it|quite (?:it|there|right)|even close|close"
        rf"|at all|so good"
        rf"|what i (?:meant|wanted|asked)|helpful|funny|right|true)(?:,? (?:honestly|sorry|tbh|i'm afraid))?{END}",
        r"i(?:'m| am) not (?:so )?sure (?:that's|this is|that is|it's) (?:right|correct|true)\b",
        r"i (?:don't|do not) think (?:that's|this is|that is|it's|so)\b(?! (?:necessary|a problem|needed|bad))",
        rf"i doubt (?:it|that|this){END}",
        rf"{IT} (?:can't|cannot) be (?:right|true|correct)|{IT} (?:doesn't|does not) (?:sound|look|seem"
        rf"|feel) (?:right|correct)\b",
        rf"no good{END}|(?:that|this|it) (?:ain't|aint) \w+|(?:thats|its) not \w+",
        rf"{IT} (?:doesn't|does not|just isn't|isn't) (?:sound |feel |look )?(?:like )?(?:me|us){END}"
        rf"|{IT} (?:doesn't|does not) (?:sound|feel|read) like (?:something|anything|how) (?:i|we)\b"
        rf"|i(?:'m| am) not (?:really )?feeling (?:it|this)\b|{IT}(?:'s| is|) ?(?:isn't|not) working for (?:me"
        rf"|us)\b|(?:doesn't|does not) (?:feel|sound) right\b",
        rf"(?:i )?(?:already )?(?:knew|know) (?:that|this|all that)(?: already)?{END}|(?:nobody|no one"
        rf"|no human) (?:talks|writes|says|speaks)\b",
        rf"what an? {BAD}|what a (?:letdown|disappointment|shame of an answer)|{IT}(?:'s| is) a no\b",
        r"do better\b|(?:come on,? )really\b",
        rf"(?:wrong|bad|terrible|poor|weak|incorrect) (?:answer|reply|response|language|tone|format|again|one|file|"
        rf"person|unit|units){END}",
    ), HintFrom.REST, answers_question=True),
    Rule("lost", Kind.COMPLAINT, any_of(
        rf"(?:you(?:'ve| have)? lost me|i(?:'m| am) lost){END}",
        rf"(?:sorry,? )?i (?:still |really |just )*(?:don't|do not|didn't|did not|can't|cannot) (?:really "
        rf"|quite )?(?:get|understand"
        rf"|follow)(?: (?:it|this|that|you|any of (?:it|this|that)|a (?:single )?(?:word|thing)|anything"
        rf"|what you \w+))?{END}",
        rf"i(?:'m| am) (?:still |even |now |just |totally |completely |more )*confused(?: now)?(?:{END}| than\b)",
        rf"huh{END}",
        r"(?:that|this|it) (?:went|goes) (?:way |right |completely )?over my head\b",
    ), HintFrom.REST, answers_question=True),
    Rule("still a fault", Kind.COMPLAINT, any_of(
        rf"(?:the|your) (?:(?:first|second|third|last) )?(?:{PARTS}|link|test|step|function|query|script|formula)"
        rf" (?:is|are) (?:dead|broken){END}|(?:the|your) (?:first|second|third|last) (?:\w+ )(?:doesn't"
        rf"|does not) work\b",
        rf"(?:it |that |this )?(?:doesn't|does not|didn't|did not|dont|doesnt|didnt|not) (?:even )?(?:work|help"
        rf"|compile|run)"
        rf"(?: either| at all| for me)?{END}",
        r"(?:it |that |this )?still (?:wrong|broken|not (?:right|working|it|what|quite)|fails|failing"
        r"|doesn't (?:work|help|compile)|the same|getting (?:an?|the)"
        r"|an? error|throws|crashes)\b",
        rf"(?:the )?same (?:error|problem|issue|mistake|result)(?: (?:again|as before|still))*{END}",
        rf"i(?:'m| am)? (?:still )?get(?:ting)? (?:an?|the same) error(?:{END}| with (?:this|that|it)\b"
        rf"| from (?:this|that)\b)",
        rf"there(?:'s| is| are) (?:(?:an?|some|several|still|\d|two|many) )?(?:\w+ )?(?:mistakes?|errors?"
        rf"|typos?|bugs?) in (?:the (?:\w+ )?(?:{PARTS}"
        r"|first|second|third|last)|this|that|your|line|step|it)\b",
        rf"{IT} (?:gives (?:me )?an? (?:\w+ )?error|crashes|raises an?|throws an?)\b",
        r"(?:u|you) (?:forgot|missed|left out|skipped|ignored|misread|overlooked)\b",
        r"you(?:'re| are) (?:totally |completely |just )?(?:missing (?:the|my) point|not (?:\w+ing)|repeating"
        r"|making (?:that|this"
        r"|things|it) up|contradicting|wrong)\b",
        r"you (?:repeat yourself|contradict yourself|made (?:that|this|it) up|got (?:the|my|it"
        r"|that) [^.?!\n]{1,40}(?:wrong"
        r"|mixed up|confused))",
    ), HintFrom.REST),
)  # fmt: skip
