"""Wishes for how a response should have been, by the constructions that English has for them.

A construction counts only with a word for how a text may be or what it is made of (`vocabulary`), or where a reply says
nothing else: "I prefer short sentences" is about the response, "I prefer tea" is not. A line of a pattern is a phrase.
"""

from __future__ import annotations

from clawd.learner.judge.rule import HintFrom, Kind, Rule, any_of, words
from clawd.learner.judge.vocabulary import (
    BE,
    COMPARED,
    END,
    FOR_WHOM,
    IT,
    LOOKS,
    PARTS,
    PLEASE,
    SLIGHTLY,
    SOFTER,
    STOP,
    STYLE,
    VERY,
    WANTED,
)

ANY = r"(?:\w[\w'-]* ){0,3}?"  # a few words between
TEXT = rf"(?:{PARTS}|{STYLE})"
THE_TEXT = rf"(?:{IT}|(?:the|your) (?:\w+ )?{PARTS})"
WOULD = r"(?:would(?: have|'ve)?|might(?: have)?|could(?: have)?|'d(?: have)?)"
NICER = words("better nicer nice good great easier clearer helpful useful appreciated lovely enough plenty ideal fine")
FORM = (
    r"(?:(?:(?:in|with|without|using|as) (?:\w+ )?(?:an? |the |any |some |all the )?(?:\w+ )?"
    rf"(?:{TEXT}|english|french|german|spanish|italian|language|terms))|in (?:one|two|three) \w+)"
)
"""The shape that a response shall have: "as a table", "in plain English", "without emojis"."""

WISHES: tuple[Rule, ...] = (
    # Only a fragment: all of the clause must be the wish, else it is about something else ("shorter days in winter").
    Rule("bare wish", Kind.DIRECTIVE, any_of(
        rf"(?:make (?:it|this|that) )?{COMPARED}(?: (?:and|but) \w+)?{PLEASE}{STOP}",
        rf"(?:please )?{FORM}{PLEASE}{STOP}",
        r"(?:more|less) like (?:an?|the) \w+|(?:please )?more (?:easy|simple|short|clear|polite|slow)\b",
        rf"(?:less|fewer) (?!than\b|is\b)\w+{PLEASE}{STOP}",
        rf"(?:just|only|simply) (?:give me |tell me |show me |say )?the (?:\w+ ){{0,2}}?"
        rf"(?:{TEXT}|result|recipe|facts|basics|essentials){PLEASE}{STOP}",
        r"(?:just|simply|only) say (?:yes|no)\b",
        rf"no (?:more |need for )?(?:the )?{TEXT}{PLEASE}{STOP}",
        rf"no (?:more )?\w+(?: \w+)?,? (?:please|pls|plz){STOP}",
        rf"{SLIGHTLY}?(?:more|less) \w+ (?:wouldn't hurt|would)\b",
        rf"(?:straight|short|plain|simple|honest) (?:answers?|words|facts)(?: only)?{PLEASE}{STOP}",
        rf"(?:please )?(?:speak|answer in|write in) (?:english|german|french|spanish|italian){PLEASE}{STOP}",
        rf"(?:{SLIGHTLY})?(?:more|less) \w+, (?:more|less) \w+{PLEASE}{STOP}",
        r"(?:now )?the same (?:without|but)\b|(?:half|a third of) (?:the|that) length\b|nothing (?:else"
        r"|more),? please" + STOP,
        r"(?:please )?(?:cut|trim|boil|water|tone) (?:it|that|this) (?:down|back)\b"
        r"|(?:please )?get to the point\b|loosen up\b",
        r"same (?:thing |text |idea |again )?(?:,? ?but|, only) \w+",
    ), HintFrom.CLAUSE, answers_question=True, alone=True),
    Rule("could you", Kind.DIRECTIVE, any_of(
        rf"(?:(?:can|could|would|will|can't|couldn't) (?:you|u|we|it|this|that|the (?:\w+ )?{PARTS}) "
        r"(?:please |maybe |possibly |perhaps )?)"
        rf"(?:be |have |make |do |keep |sound |put |say |write |phrase |get |give )?"
        rf"(?:it |this |that |me |us |the (?:tone|text|answer) )?(?:be |sound |to be |in |with )?(?:{COMPARED}"
        rf"|(?:a (?:bit|little) )?(?:more|less) \w+ly\b|under \d+|under an? \w+ words|{FORM})",
        rf"(?:can|could|would|will) you (?:please )?(?:use|try|have|give me|include|add) (?:\w+ )?"
        rf"(?:{SOFTER}|simple|plain|easy|short|(?:more|less|fewer) {TEXT})",
        rf"(?:can|could|would|will) (?:you|we) (?:please )?(?:cut|drop|skip|lose|leave out|spare me"
        rf"|tone down) (?:(?:the|all|on|down)"
        rf" )*(?:\w+ )?{TEXT}",
        r"(?:can|could|would|will|can't|couldn't) you (?:please |maybe )?(?:not \w+|(?:just )?keep (?:it|this|that)"
        r"|(?:say|put|write|phrase|word|express|explain) (?:it|this|that) (?:more|less|in|like|as|without|again|with)"
        r"|stick to|stop)\b",
        rf"would you mind (?:being|making it|writing it|not) {ANY}\w+",
        r"would it be possible to (?:have|get) (?:it|this|that)\b",
        rf"(?:can|could|may) (?:i|we) (?:please )?(?:have|get|see) (?:(?:it|this|that) {FORM}|(?:less|fewer"
        rf"|more) {TEXT}"
        rf"|the (?:short|shorter|simple|long|plain|quick) \w+)",
        rf"(?:any chance of|is there|do you have|have you got) an? (?:{SOFTER}) (?:version|answer|text|one)\b",
        r"(?:do|must) you (?:always |have to |really have to |really need to )(?:always )?(?:begin|start|end|repeat"
        rf"|apologi[sz]e|say|be (?:so|that) {LOOKS})\b",
        rf"(?:how|what) about (?:(?:making|keeping) it |using |adding |having |an? )?"
        rf"(?:{COMPARED}|{SOFTER} \w+|(?:simple|simpler|plain|easy) words|(?:a (?:bit|little) of |some |fewer "
        rf"|less ){PARTS})",
        rf"why (?:so|that|this) (?:{LOOKS}|{WANTED}){END}",
        rf"why (?:all )?(?:the|these|those|all these) (?:\w+ )?{TEXT}",
        rf"why (?:not|don't you) (?:just )?(?:use|make it|write it|put it|give|say|add"
        rf"|start with) (?:\w+ ){{0,2}}?{TEXT}",
    ), HintFrom.CLAUSE, answers_question=True),
    Rule("should have", Kind.DIRECTIVE, any_of(
        r"you (?:should|could|might)(?:n't)?(?: ?'?ve| have) (?:(?:just|simply|really|also"
        r"|at least) )?(?!seen\b|heard\b)(?:\w+ed|been|had|said|put|given|written|made|told|shown|begun|done|kept)\b",
        rf"(?:{IT} )?(?:should|could|ought to)(?: have|'ve) (?:been|had|used|sounded) (?:(?:an?|more|less|some"
        rf"|shown)\b"
        rf"|{COMPARED})",
        rf"{THE_TEXT} (?:should|could|must|ought to|needs? to|has to) (?:(?:be|sound|feel|read"
        rf"|look) )?(?:like\b|{COMPARED}"
        rf"|(?:a (?:bit|little) )?(?:{WANTED}){END}|(?:have|use|do with) (?:an?|the|some|more|less) {ANY}{TEXT})",
        rf"{THE_TEXT}(?:'s| is| was)? ?(?:needs?|could use|could do with|lacks?|misses|missing) (?:(?:an?|the"
        rf"|any|some|more"
        rf"|a (?:bit|touch|dash) of|a (?:bit|little) more) )*(?:\w+ )?{TEXT}",
        r"what'?s missing is (?:an?|the) \w+",
        r"a (?:simple|short|plain) \w+ would (?:have )?(?:done|do|be enough|been enough|sufficed?)\b",
        rf"(?:lacks|lacking|missing:?|what'?s missing(?: is)?|what i miss(?:ed)?(?: is)?|i miss(?:ed)?) (?:an?"
        rf"|the|any|some)"
        rf" (?:\w+ )?{TEXT}",
        rf"(?:{IT} ?|there ?)?(?:would|'d)(?: have been|'ve been| be) (?:even |much |so |more )*{NICER} "
        rf"(?:(?:if (?:you|it|there|the|your)|with(?:out)?|as an?)\b|to (?:have|get|see) {ANY}(?:{TEXT}|praise"
        rf"|context))",
        rf"(?:{IT} )?would (?:really )?(?:have helped|help) (?:me |us )?(?:more )?(?:if you|if there|to (?:have"
        rf"|see))",
        rf"(?:(?:an?|one|two|some|any|more|less|fewer|half|bullet|a few) )(?:or \w+ )?{ANY}{TEXT} "
        rf"(?:{WOULD}|is|are)(?: be)?(?: been)? (?:easier|more |much |far |really )*(?:{NICER}|help|helped|done"
        rf"|do\b)",
        rf"(?:{TEXT}|prose) would (?:be|have been) (?:much )?{NICER}",
        rf"(?:it|that|this) would (?:sound|look|read|feel) (?:much |even )?{NICER}",
        rf"i(?:'d| would) (?:have )?(?:liked|like|loved|preferred) (?:{COMPARED}|(?:the |some |more |a (?:bit"
        rf"|little) more ){ANY}{TEXT})",
        rf"i(?:'d| would) appreciate (?:it if you|(?:an? |some |more |less |fewer ){ANY}{TEXT})",
        rf"you (?:could|should|might|need to) (?:try to )?be {COMPARED}",
        rf"(?:an?|some|any|one) {ANY}{TEXT} (?:wouldn't|would not) (?:hurt|go amiss|harm)\b",
        rf"i(?:'d| would) be happier with (?:an?|the|some|fewer|more|less) {ANY}{TEXT}",
        rf"i wish (?:you (?:would|could|had|were|wouldn't|weren't|didn't)|it (?:had|was|were|sounded)|your"
        rf"|the (?:\w+ )?{PARTS})\b",
    ), HintFrom.CLAUSE, alone=True),
    Rule("told how", Kind.DIRECTIVE, any_of(
        rf"(?:please |always |just |try to )*(?:be|sound) (?:always )?(?:{COMPARED}|(?:{WANTED}){PLEASE}{END}"
        rf"|(?:more|less) \w+{END}|(?:a (?:bit|little) )?(?:kinder|nicer|gentler|quicker)\b|(?:more"
        rf"|less) like\b|{WANTED} "
        rf"(?:with|to|and)\b)",
        r"(?:please )?(?:treat|talk to|speak to|write to|explain (?:it|this|that)(?: to me)?) (?:me )?(?:like|as)\b",
        rf"(?:please )?(?:go|speak|write) {SOFTER}",
        r"(?:please |to )?(?:write|answer|explain|speak|say)(?: (?:it|this|that|in))*,? (?:more|less|very) \w+",
        rf"(?:please )?(?:make|keep) (?:it|this|that|the {PARTS}|your {PARTS}) (?!an?\b|until\b|for\b|warm\b)\w+",
        rf"(?:please )?give (?:it) (?:(?:more|less|some|a (?:bit|little) (?:of|more)|the (?:short|long|simple"
        rf"|full)) )"
        rf"(?:\w+ )?(?:{TEXT}|version)",
        r"(?:please )?give me the (?:short|long|simple|full|quick) version\b",
        r"(?:please )?give me the \w+ (?:one by one|first|only)\b",
        rf"(?:please )?give me (?:prose|bullet points|a table|a list){END}",
        r"(?:please )?(?:turn|put|format|rewrite|rephrase|redo|shorten|simplify) (?:it|this|that)(?! \w+:)"
        r" (?:in|into|as|without|with|so that|to|for)\b",
        r"(?:please )?(?:re-?write|rephrase|redo|rework) (?:it|that|this)" + END,
        rf"(?:please )?put (?:the|your) (?:(?:\w+ )?{TEXT}|results?|answer|verdict|most important \w+"
        rf"|main \w+) (?:first|last|at the (?:top|end|beginning))\b",
        rf"(?:please )?(?:start|begin|open|end|close|finish) with (?:the|an?) (?:\w+ )?(?:{TEXT}|results?"
        rf"|points?|questions?|compliment|thanks)",
        rf"(?:please )?(?:add|include|mention|cite) (?:an?|the|some|your|more|any|actual)? ?"
        rf"(?:\w+ )?(?:{PARTS}(?! of\b|:)|colou?r)(?: (?:too|first)\b|{PLEASE}{END})",
        rf"(?:please )?(?:mention|include|add|name) (?:the |her |his |my |what )\w+ (?:\w+ )?too{END}",
        rf"(?:please )?use (?:my name|her name|his name|(?:{SOFTER}|simple|easy|plain|metric|imperial|british"
        rf"|american|proper"
        rf"|correct|bullet|full|real) \w+)\b",
        rf"instead of (?:an? |the |all |your |those )?(?:{TEXT}|\w+ing\b)[^.?!\n]{{0,60}}?,",
        rf"rather than (?:an? |the )?{TEXT}[^.?!\n]{{0,40}}?,",
        r"(?:please )?try (?:it |that |this )?(?:again|once more)\s*(?:,|with|in|without|using)",
        rf"(?:please )?try (?:an? |the )?(?:{SOFTER} \w+|(?:\w+ )?{TEXT})",
        r"(?:once (?:again|more)|again|one more time)(?: please)?,? (?:but|please|with|without|in)\b",
        r"say (?:it|that|this) (?:again )?(?:more|less|in|with|without)\b",
        r"(?:please |just )?remember (?:that )?(?:i'm|i am|i only|i don't|to (?:use|cite|add|keep|include"
        r"|always|be|start"
        r"|write|give|mention|leave))\b",
        r"(?:please )?keep (?:answering|writing|explaining|using|being) (?:like|this|that|it)\b",
        r"(?:please )?stick (?:to|with) (?:that|the|one|two|my|our|\w+ing)\b",
    ), HintFrom.CLAUSE, answers_question=True, alone=True),
    Rule("unwanted", Kind.DIRECTIVE, any_of(
        rf"(?:please )?(?:drop|skip|lose|cut|cut out|ditch|quit|spare me|enough with|enough of|leave out|less of) "
        rf"(?:(?:the|all|that|this|these|your|any|my) )*(?:\w+ )?(?:{TEXT}|basics|history|hype|nonsense|tone)",
        r"no (?:intro|fuss|story|frills|small talk|jokes|lectures?|sugar-?coating)\b",
        r"you (?:don't|do not|needn't) (?:need to|have to) (?:always )?(?:explain|repeat|apologi[sz]e|be|use"
        r"|add|start|say|write|include|list|remind|lecture|flatter|agree|greet|ask|mention|justify)\b",
        r"(?:there's |there is )?no need (?:to|for you to) (?!worry|hurry|rush|panic|thank|apologi[sz]e to|reply)\w+",
        r"(?:there's |there is )?no need for (?:the|so|all|an?) \w+",
        rf"i (?:don't|do not) (?:need|want|like|care for|enjoy) {ANY}{TEXT}",
        rf"i(?:'m| am) not (?:a|much of a|the biggest) fan of {ANY}{TEXT}",
        rf"i (?:can't stand|hate|dislike) {ANY}(?:{TEXT}|corporate|speak)\b",
        rf"(?:the|your|these|those|all the) (?:\w+ )?{PARTS}{BE}{VERY} (?:unnecessary|not needed|superfluous|annoying"
        rf"|distracting|redundant|pointless|off)\b",
    ), HintFrom.CLAUSE, answers_question=True, alone=True),
    Rule("would rather", Kind.DIRECTIVE, any_of(
        rf"i(?:'d| would)? (?:think i |much |really |actually )*(?:prefer|favou?r) (?:it |this |that "
        rf"|to (?:have|see|get"
        rf"|read) )?{ANY}(?:{TEXT}|{SOFTER}|(?:more|less) \w+|form\b|version\b|dialogue\b|if you\b|you to\b)",
        rf"i(?:'d| would) (?:much |really )?rather (?:you\b|(?:have|get|see|read) (?:it|this|that|an?|the|just"
        rf"|some)\b"
        rf"|not (?:have|see|read)|{ANY}{TEXT})",
        rf"i(?:'d| would) (?:really )?(?:like|love|want|wish for) (?:it |this |that |to (?:see|have) |the {PARTS} )?"
        rf"(?:to be )?(?:{COMPARED}|in (?:plain|simple)\b)",
        rf"i (?:need|want|would need|'d need|needed|wanted) (?:it|this|that|something|the (?:text|answer"
        rf"|tone)) (?:to be )?"
        rf"(?:{COMPARED}|{WANTED}\b|{FORM}|(?:that |which )?my \w+|in \w+|from you)",
        rf"i (?:need|want|needed|wanted) (?:{COMPARED}|sources?\b|references?\b)",
        r"i (?:only|just|simply) (?:need|want|needed|wanted|asked for) (?:the|a (?:short|simple|quick|yes|plain"
        r"|rough))"
        rf"(?: \w+){{1,4}}{END}",
        r"(?:when|whenever|if) i (?:ask|say|want|write)\b[^,.?!\n]{0,50}, (?:i (?:only|just|want)|you|please"
        r"|just|don't|give)\b",
        rf"i(?:'m| am| was) (?:hoping|looking|expecting)(?: for)? (?:(?:an?|the|some|something|anything|three"
        rf"|two|more|less)"
        rf" )?(?:{ANY}{TEXT}|{SOFTER}|(?:more|less) \w+|(?:short|quick|simple|personal|funny|brief)\b)",
        rf"i (?:expected|wanted|asked for|needed) (?:an?|the|some|only|just|something|more|less) (?:\w+ )?"
        rf"(?:{TEXT}|{WANTED}|{SOFTER}|(?:more|less) \w+)",
        rf"i asked (?:you to\b|for (?!help|advice|it|that|this|him|her|them|you|directions|permission"
        rf"|forgiveness)\w+{END})",
        r"(?:for|in) (?:us|me|(?:my|our|a|an|the|this|such an?) \w+(?: \w+)?),? (?:it|this|that|the \w+|we|people) "
        r"(?:(?:must|should|needs? to|has to|ought to) (?:be|sound|have)|say|write|use|call)\b",
        rf"we (?:always |never |don't |do not )?(?:say|spell|(?:use|write|prefer) {ANY}(?:{TEXT}|spelling"
        rf"|indentation|tabs"
        rf"|spaces|hyphens|first names)|call (?:it|them|that))\b",
        r"(?:your|the) code (?:should|must|needs to) \w+",
        r"less is more\b|too long,? did ?n.?t read\b",
    ), HintFrom.CLAUSE, answers_question=True, alone=True),
    # A fault that names its remedy: what is too much so shall be less so.
    Rule("too much", Kind.COMPLAINT, any_of(
        rf"(?:{THE_TEXT}{BE}{VERY} )?(?:(?:way|far|much|a bit|a little|a tad|bit|kinda|kind of|rather|slightly"
        rf"|somewhat"
        rf"|still|just|all) )*too (?:{LOOKS}|wordy|sweet|soft|weak|polite|positive|easy|high-level)(?:{END}"
        rf"|{FOR_WHOM}| and\b"
        rf"| with\b)",
        rf"(?:{THE_TEXT}{BE}{VERY} )(?:(?:way|far|much|a bit|a little|still) )*too (?:much|{LOOKS})(?:{END}"
        rf"|{FOR_WHOM})",
        rf"too (?!bad|late|true|right|funny|cute|good|kind|sad|early|busy|tired|many|much)\w+{END}",
        rf"(?:there(?:'s| is| are) )?(?:(?:way|far|much|simply) )*too (?:many|much) (?:\w+ )?{TEXT}(?:{END}"
        rf"|{FOR_WHOM}| (?:for|in) )",
        rf"(?:way |far )?too (?:many|much) \w+{END}",
        rf"(?:{IT}{BE} )?(?:just |only |still )*(?:a (?:bit|little|tad) |way |far |much )too (?!late|early|hot"
        rf"|far|tired|busy)\w+{END}",
        rf"you(?:'re| are) being too (?:nice|{LOOKS}|polite|kind|soft)\b",
        rf"i find (?:it|this|that) (?:(?:way|far|much|a bit|a little) )?too \w+{END}|(?:(?:way|far|much|a bit"
        rf"|a little) )?too \w+ for (?:an?|my|our|the|me|us)\b",
        rf"(?:(?:it|that|this) )?(?:doesn't|does not) have enough (?:\w+ )?{TEXT}|(?:way |far )(?:more"
        rf"|less) (?:\w+ )?than i (?:wanted|asked|need)",
        rf"(?:{THE_TEXT}{BE} |for an? \w+ (?:this|that|it)(?:'s| is) )(?:awfully|terribly|painfully|overly"
        rf"|far too) (?:{LOOKS})\b",
        rf"(?:{THE_TEXT}{BE}{VERY} |(?:came across|comes across) as )?(?:(?:a (?:bit|little|tad|touch)|bit"
        rf"|kinda|kind of|rather"
        rf"|slightly|somewhat|overly) )+(?:on the )?(?:{LOOKS}|much)(?: side)?(?:{PLEASE}{END}|{FOR_WHOM}| on\b|, )",
        rf"{THE_TEXT}{BE}{VERY} (?:long-?winded|wordy|verbose|rambling|flowery|stiff|stilted|vague)\b",
        rf"not (?:quite |really |nearly )?{WANTED} enough",
        rf"{THE_TEXT}(?:{BE} not|(?: is| was)n't) {WANTED} enough",
        rf"(?:there(?:'s| is| are|) (?:not|n't) |there (?:isn't|aren't) |not )(?:nearly )?enough {ANY}{TEXT}",
        rf"there(?:'s| is| are| was| were) no (?:\w+ )?{PARTS}(?:{END}| at the\b| in (?:it|this|that|here|there)\b)",
        rf"where(?:'s| is| are| did) (?:the|my|your|all the) (?:\w+ )?{TEXT}(?: (?:go|i asked|i wanted)|{END})",
        r"where(?:'s| is| are) the \w+ (?:that )?i (?:asked|wanted)",
        rf"{IT} lacks (?:an?|the|any|some|all)? ?\w+{END}",
    ), HintFrom.CLAUSE, about_it=True),
)  # fmt: skip
