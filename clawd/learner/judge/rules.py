"""The rules judge: what a reply or a tool's result says about the response before it, by named, deterministic rules.

It decides on plain texts and has no state. Where no rule applies it says 0: a wrong signal costs more than a missed
one.
"""

from __future__ import annotations

from dataclasses import dataclass

from clawd.learner.judge.asked_again import is_asked_again
from clawd.learner.judge.phrases import HARMLESS, TROUBLE
from clawd.learner.judge.reactions import Reaction, correction, is_request, reactions
from clawd.learner.judge.reply import Reply, read, texts_of_role
from clawd.learner.judge.rule import Kind
from clawd.learner.judge.tool_results import failure
from clawd.openclaw_text import is_note
from clawd.store.records import Message, Reward, Vote

JUDGE = "rules"
NOTHING_APPLIES = "no rule applies"


@dataclass(frozen=True)
class Reading:
    """What the rules say. `rules`: the names of those that applied, in the order of the text."""

    score: Reward
    rules: tuple[str, ...]
    hint: str | None
    veto: bool  # its -1 stands against a judge model's votes

    def vote(self) -> Vote:
        return Vote(JUDGE, self.score, ", ".join(self.rules) or NOTHING_APPLIES, self.hint)


def judge(asked: str, response: str, next_state: list[Message]) -> Reading:
    """Read what followed `response`, which answered the user's message `asked`."""
    failed = [name for text in texts_of_role(next_state, "tool") if (name := failure(text))]
    reading = read_reply(asked, response, "\n\n".join(texts_of_role(next_state, "user")))
    if not failed:
        return reading
    return Reading(-1, (*dict.fromkeys(failed), *reading.rules), reading.hint, veto=True)


def read_reply(asked: str, response: str, text: str) -> Reading:
    """Read a user's reply."""
    reply = read(text, HARMLESS)
    found = reactions(reply, was_asked=response.rstrip().endswith("?"))
    names = tuple(dict.fromkeys(each.rule.name for each in found))
    hint = correction(reply, found)
    if not any(each.rule.kind is Kind.COMPLAINT for each in found) and is_asked_again(asked, text):
        return Reading(-1, ("asked again", *names), hint, veto=False)
    score = _score(reply, found)
    if not score:
        names = tuple(f"{name}, in doubt" for name in names)
    return Reading(score, names, hint, veto=score < 0 and any(each.rule.veto for each in found))


def _score(reply: Reply, found: list[Reaction]) -> Reward:
    kinds = {each.rule.kind for each in found}
    if Kind.COMPLAINT in kinds:
        return -1
    if Kind.DIRECTIVE in kinds:
        if Kind.PRAISE in kinds:
            return 0 if _is_faint(found) else 1
        return 1 if Kind.THANKS in kinds and not _is_contrasted(reply, found) else -1
    pleased = kinds & {Kind.PRAISE, Kind.THANKS}
    return 1 if pleased and not TROUBLE.search(_before_new_request(reply)) else 0


def _is_faint(found: list[Reaction]) -> bool:
    """Praise that may only lead up to a wish: "Nice work, but shorter", "good, now the same without lists"."""
    wishes = [each for each in found if each.rule.kind is Kind.DIRECTIVE]
    if any(each.rule.standing for each in wishes):
        return False  # "… next time": this time was well
    cheers = all(each.rule.ends_topic for each in found if each.rule.kind is Kind.PRAISE)
    return cheers or any(each.clause.contrast for each in wishes)


def _is_contrasted(reply: Reply, found: list[Reaction]) -> bool:
    """ "Thanks, but shorter please": the thanks are politeness, as they are after the wish: "shorter, thanks"."""
    wishes = [each for each in found if each.rule.kind is Kind.DIRECTIVE]
    thanks = [each for each in found if each.rule.kind is not Kind.DIRECTIVE]
    contrasts = (clause.contrast for each in thanks for clause in reply.sentences[each.place].clauses)
    return any(each.clause.contrast for each in wishes) or any(contrasts) or wishes[0].start < thanks[0].start


def _before_new_request(reply: Reply) -> str:
    for sentence in reply.sentences[1:]:
        if is_request(reply, sentence):
            return reply.text[: sentence.start]
    return reply.text


def last_user_text(messages: list[Message]) -> str:
    """The user's message that a response answered."""
    texts = texts_of_role(messages, "user")
    theirs = [text for text in texts if not is_note(text)] or texts
    return theirs[-1] if theirs else ""
