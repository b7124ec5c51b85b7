"""Which rules of `phrases` apply to a reply, and which of its sentences correct the response."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from clawd.learner.judge.instruction import instruction
from clawd.learner.judge.phrases import REQUEST, RULES, TRIED
from clawd.learner.judge.reply import Clause, Reply, Sentence
from clawd.learner.judge.rule import HintFrom, Kind, Rule

SENTENCES_READ = 6  # a reaction comes first; what stands further down is about something else
LONGEST_HINT = 300  # characters
FEWEST_WORDS = 3  # of what a user says after a rejection, for it to be a correction

GREETING = re.compile(
    r"(?:(?:(?:no|nope|nah|nein)(?=\s*[,.!:;–—-]| (?:it|that|this|you|i|the|das)\b)|hi|hey|hello"
    r"|hallo|well|hmm+|um+|uh+"
    r"|oh|ah|ok|okay|sorry|thanks|thank you|danke|but|and|though|aber|look|listen|wow|ugh|yes|yeah"
    r"|great|nice|good|cool)\b"
    r"[\s,.!:–—-]*)+",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Reaction:
    rule: Rule
    start: int
    end: int
    clause: Clause
    place: int  # of its sentence


def reactions(reply: Reply, was_asked: bool) -> list[Reaction]:
    """All rules that apply, sentence by sentence, as long as the reply is about the response.

    `was_asked`: the response ended with a question, so that "no" answers it.
    """
    found: list[Reaction] = []
    requested = False
    for place, sentence in enumerate(reply.sentences[:SENTENCES_READ]):
        here = [each for each in _in_sentence(reply, place, was_asked) if _counts(reply, each, found, requested)]
        requested = requested or (not here and is_request(reply, sentence)) or _goes_on(reply, sentence, here)
        found += here
    asks = _asks(reply, found)
    return [each for each in found if not (requested and each.rule.ends_topic) and not (asks and each.rule.alone)]


def _asks(reply: Reply, found: list[Reaction]) -> bool:
    """Whether something is asked besides what reacts: "I'd rather have a cat. Which breeds are calm?" """
    reacting = {each.place for each in found if not each.rule.alone}
    return any(each.is_question and place not in reacting for place, each in enumerate(reply.sentences))


def _in_sentence(reply: Reply, place: int, was_asked: bool) -> Iterator[Reaction]:
    sentence = reply.sentences[place]
    for clause in sentence.clauses:
        for rule in RULES:
            if was_asked and rule.answers_question and place == 0:
                continue
            for start in clause.starts:
                if hit := rule.pattern.match(reply.masked, start, sentence.end):
                    yield Reaction(rule, start, hit.end(), clause, place)
                    break


def _counts(reply: Reply, reaction: Reaction, before: list[Reaction], requested: bool) -> bool:
    rule = reaction.rule
    if rule.standing or (rule.kind is Kind.COMPLAINT and not rule.about_it):
        return True
    if _is_told_with_a_request(reply, reaction):
        return False
    if reaction.place and not before:
        earlier = reply.sentences[reaction.place - 1]
        if rule.about_it and not TRIED.match(reply.masked, earlier.start):
            return False  # "My printer is old. It doesn't work any more."
        if rule.kind is Kind.THANKS and not TRIED.match(reply.masked, earlier.start) and not _is_understanding(reply):
            return False  # "I need a letter to my landlord. Thanks."
    return rule.kind is Kind.COMPLAINT or rule.standing or not requested


def _is_told_with_a_request(reply: Reply, reaction: Reaction) -> bool:
    """ "Write a poem, but don't use rhymes." """
    first = reply.sentences[reaction.place].clauses[0]
    if reaction.clause == first or not REQUEST.match(reply.masked, first.starts[-1], first.end):
        return False
    return not any(rule.pattern.match(reply.masked, start, first.end) for rule in RULES for start in first.starts)


def _is_understanding(reply: Reply) -> bool:
    """Whether the reply begins with a mere sign of life, such as "ah" or "cool"."""
    first = reply.sentences[0]
    return not reply.masked[first.clauses[0].starts[-1] : first.end].strip()


def is_request(reply: Reply, sentence: Sentence) -> bool:
    start = sentence.clauses[0].starts[-1]
    return sentence.is_question or REQUEST.match(reply.masked, start, sentence.end) is not None


def _goes_on(reply: Reply, sentence: Sentence, here: list[Reaction]) -> bool:
    """Whether a sentence turns from a reaction to a new request: "great, now write the second chapter"."""
    if any(each.rule.kind is Kind.DIRECTIVE for each in here):
        return False
    reacting = [each.clause for each in here if each.clause.starts[0] != sentence.start]
    return any(
        REQUEST.match(reply.masked, clause.starts[-1], clause.end)
        for clause in sentence.clauses[1:] or sentence.clauses
        if clause not in reacting
    )


# -- corrections


def correction(reply: Reply, found: list[Reaction]) -> str | None:
    """The correcting sentences, without greeting and "no,", once each; none: nothing is corrected."""
    spans: list[tuple[int, int]] = []
    for each in sorted(found, key=lambda reaction: reaction.start):
        span = _span(reply, each, found)
        if span and not (spans and span[0] < spans[-1][1]):
            spans.append(span)
    sentences = dict.fromkeys(cleaned for span in spans if (cleaned := instruction(clean(reply.text[slice(*span)]))))
    return shorten(". ".join(sentences)) or None


def _span(reply: Reply, reaction: Reaction, found: list[Reaction]) -> tuple[int, int] | None:
    sentence = reply.sentences[reaction.place]
    if reaction.rule.hint is HintFrom.CLAUSE:
        return reaction.clause.starts[0], sentence.end
    if reaction.rule.hint is HintFrom.REST:
        return _rest(reply, reaction, found)
    return None


def _rest(reply: Reply, reaction: Reaction, found: list[Reaction]) -> tuple[int, int] | None:
    """What the user says after the rejection: the rest of the sentence, else the next one if it states something."""
    sentence = reply.sentences[reaction.place]
    if any(each.rule.hint is HintFrom.CLAUSE for each in found if each.place == reaction.place):
        return None  # that says it
    reacted_until = max(each.end for each in found if each.place == reaction.place)
    if len(reply.masked[reacted_until : sentence.end].split()) >= FEWEST_WORDS:
        return reaction.start, sentence.end
    for after in reply.sentences[reaction.place + 1 : reaction.place + 2]:
        if not is_request(reply, after) and len(reply.text[after.start : after.end].split()) >= FEWEST_WORDS:
            return after.start, after.end
    return None


def clean(text: str) -> str:
    """On one line, without what leads up to it."""
    text = " ".join(text.split())
    greeting = GREETING.match(text)
    if greeting and len(text[greeting.end() :].split()) >= FEWEST_WORDS - 1:
        text = text[greeting.end() :]
    return text.strip(" .!,;:–—-")


def shorten(text: str) -> str:
    return text if len(text) <= LONGEST_HINT else text[:LONGEST_HINT].rsplit(" ", 1)[0] + " …"
