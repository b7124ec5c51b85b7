from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from clawd.config import JudgeSettings
from clawd.learner.judge.llm import JudgeUnreachable, LlmJudge, clean_hint, parse_verdict
from clawd.learner.judge.prompt import LONGEST_PART, judge_messages
from clawd.store.records import Turn, Vote
from tests.learner.parts import ScriptedJudge, World, completion, verdict


@pytest.fixture
def turn(tmp_path: Path) -> Turn:
    world = World(tmp_path)
    found = world.store.turns.get(world.turn("Hm, ok."))
    world.store.close()
    return found


def ask(judge: ScriptedJudge, turn: Turn, **settings: Any) -> list[Vote]:
    llm = LlmJudge(JudgeSettings(**{"votes": 1, "timeout_s": 5.0, **settings}), judge.url, "m", is_own_server=False)

    async def votes() -> list[Vote]:
        async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
            return await llm.votes(client, turn)

    return asyncio.run(votes())


INVALID = {
    "7": "not a JSON object",
    '"1."': "not a JSON object",
    "{}": "score",
    "I think the score is 1.": "not one JSON object",
    verdict(1) + "\n" + verdict(-1): "not one JSON object",
    '{"score": 1, "score": -1, "correction": false}': "contradicts itself",
    "": "empty answer",
    '{"score": 2, "correction": false}': "score",
    '{"score": "1", "correction": false}': "score",
    '{"score": 0.5, "correction": false}': "score",
    '{"score": true, "correction": false}': "score",
    '{"score": null, "correction": false}': "score",
    '{"score": 1, "correction": "no"}': "correction",
    '{"score": NaN, "correction": false}': "score",
    "[" * 5000: "not one JSON object",
}


class TestValidity:
    """J1: only -1, 0 and 1 count; else asked again, then no vote; never a silent 0."""

    @pytest.mark.parametrize("answer", INVALID, ids=lambda text: text[:30])
    def test_an_invalid_answer_is_no_vote(self, turn: Turn, answer: str) -> None:
        with ScriptedJudge([answer]) as judge:
            (vote,) = ask(judge, turn, attempts=2)
        assert vote.score is None and vote.hint is None
        assert vote.reason.startswith("no vote: ") and INVALID[answer] in vote.reason
        assert len(judge.requests) == 2

    def test_asked_again_it_may_be_valid(self, turn: Turn) -> None:
        with ScriptedJudge(["7", verdict(-1)]) as judge:
            (vote,) = ask(judge, turn)
        assert vote.score == -1 and vote.reason == "as seen" and vote.answer == verdict(-1)

    def test_an_answer_in_a_code_fence_counts(self) -> None:
        assert parse_verdict(f"```json\n{verdict(1)}\n```").score == 1

    def test_a_cut_answer_is_no_vote_however_it_reads(self, turn: Turn) -> None:
        """J2."""
        with ScriptedJudge(lambda body: (200, completion(verdict(1), "length"))) as judge:
            (vote,) = ask(judge, turn, attempts=2)
        assert vote.score is None and vote.reason == "no vote: cut by its token limit"
        assert len(judge.requests) == 2


class TestHints:
    def test_a_hint_counts_only_with_a_correction(self, turn: Turn) -> None:
        answer = json.dumps({"reason": "x", "score": -1, "correction": False, "hint": "[HINT_START] Do. [HINT_END]"})
        with ScriptedJudge([answer]) as judge:
            assert ask(judge, turn)[0].hint is None
        with ScriptedJudge([verdict(-1, "Do.")]) as judge:
            assert ask(judge, turn)[0].hint == "Do."

    @pytest.mark.parametrize(
        ("text", "hint"),
        [
            ("[HINT_START] Say  it\nshorter. [HINT_END]", "Say it shorter."),
            ("so: [HINT_START]Do[HINT_END] that is it", "Do"),
            ("Do", "Do"),
            ("[HINT_START] Do", "Do"),
            ("[HINT_START] [HINT_END]", None),
            (" ", None),
        ],
    )
    def test_the_marks(self, text: str, hint: str | None) -> None:
        assert clean_hint(text) == hint


class TestRequest:
    def test_what_is_asked(self, turn: Turn) -> None:
        with ScriptedJudge([verdict(0)]) as judge:
            ask(judge, turn, votes=3, temperature=0.4, max_tokens=99, api_key=SecretStr("sk-1"))
        assert len(judge.requests) == 3
        body = judge.requests[0]
        assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.4, 99)
        assert body["response_format"]["json_schema"]["schema"]["properties"]["score"]["enum"] == [-1, 0, 1]
        assert judge.headers[0]["authorization"] == "Bearer sk-1"
        assert "x-clawd-priority" not in judge.headers[0]

    def test_an_endpoint_without_structured_output_is_asked_without(self, turn: Turn) -> None:
        def answer(body: dict) -> tuple[int, Any]:
            return (400, {"error": "response_format"}) if "response_format" in body else (200, completion(verdict(1)))

        with ScriptedJudge(answer) as judge:
            assert ask(judge, turn)[0].score == 1
        assert ["response_format" in body for body in judge.requests] == [True, False]

    def test_the_judged_text_is_data_between_marks_that_it_cannot_forge(self, turn: Turn) -> None:
        system, user = judge_messages(turn, lambda: "c0de")
        assert "c0de" in system["content"] and "never an instruction" in system["content"]
        assert user["content"].count("<<<c0de ") == 6
        assert turn.response_text in user["content"] and "user: Hm, ok." in user["content"]
        assert judge_messages(turn) != judge_messages(turn)

    def test_long_texts_are_shortened_in_the_middle(self, tmp_path: Path) -> None:
        world = World(tmp_path / "b")
        long = world.store.turns.get(world.turn("No. " + "x" * 50_000 + " Wrong.", answer="y" * 50_000))
        world.store.close()
        content = judge_messages(long)[1]["content"]
        assert len(content) < 2 * LONGEST_PART + 1000
        assert "user: No. xxx" in content and "xxx Wrong." in content and "characters left out" in content


class TestUnreachable:
    """J6."""

    @pytest.mark.parametrize(
        ("status", "body"),
        [(500, {"error": "boom"}), (401, {"error": "key"}), (404, {}), (200, {"choices": []}), (200, ["x"])],
    )
    def test_an_endpoint_that_does_not_work_is_no_vote_of_anybody(self, turn: Turn, status: int, body: Any) -> None:
        with ScriptedJudge(lambda _: (status, body)) as judge, pytest.raises(JudgeUnreachable):
            ask(judge, turn)

    def test_nobody_listens(self, turn: Turn) -> None:
        judge = ScriptedJudge([verdict(1)])
        judge.close()
        with pytest.raises(JudgeUnreachable, match="can't be reached"):
            ask(judge, turn)

    def test_an_invalid_vote_beside_a_failed_call_is_no_judgement(self, turn: Turn) -> None:
        answers = [(500, {}), (200, completion("7"))]
        with ScriptedJudge(lambda _: answers.pop()) as judge, pytest.raises(JudgeUnreachable):
            ask(judge, turn, votes=2, attempts=1)

    def test_votes_that_came_count_when_another_call_failed(self, turn: Turn) -> None:
        answers = [(200, completion(verdict(-1))), (500, {}), (200, completion(verdict(-1)))]
        with ScriptedJudge(lambda _: answers.pop()) as judge:
            votes = ask(judge, turn, votes=3)
        assert sorted(str(vote.score) for vote in votes) == ["-1", "-1", "None"]
