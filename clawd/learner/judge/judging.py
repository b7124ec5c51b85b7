"""From a turn that is to be judged to a sample, or to the reason why it teaches nothing.

The order of evidence: explicit feedback decides alone; else the rules, or the votes of a judge model under the rules'
vetoes. Two loops, so that a slow model delays nobody: `Judging` decides at once what it can, `ModelJudging` asks for
the rest. Both do what is due and return; a turn that they don't get to stays in the store and is due again.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence

import httpx

from clawd.errors import StoreError, TransitionRefused
from clawd.learner.judge import rules as judge_rules
from clawd.learner.judge.llm import JudgeUnreachable, LlmJudge
from clawd.learner.judge.samples import unusable
from clawd.store import Store
from clawd.store.records import Reward, Turn, Vote
from clawd.store.signals import FEEDBACK

log = logging.getLogger(__name__)

MOST_PER_LOOK = 10_000  # ids; a backlog of any size is worked off look by look
TURNS_AT_ONCE = 4
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0

UNREACHABLE, ANSWERS = "judge.unreachable", "judge.answers"

NO_SIGNAL = "no signal: scored 0, no hint"
NO_SCORE = "no score: no valid vote"
NO_ADAPTER = "answered by the bare base on request"


def majority(votes: Sequence[Vote]) -> Reward | None:
    """r: the strict majority of the valid votes, a tie or none 0; None without a valid vote, which is not 0."""
    counts: Counter[Reward] = Counter(vote.score for vote in votes if vote.score is not None)
    if not counts:
        return None
    score, most = counts.most_common(1)[0]
    return score if 2 * most > counts.total() else 0


class Verdicts:
    """Writes down how a turn was judged; both loops end here."""

    def __init__(self, store: Store, *, card: bool) -> None:
        """With `card`, the preference card of an adapter teaches on each of its turns."""
        self._store = store
        self._card = card

    def conclude(self, turn_id: str, votes: Sequence[Vote], reward: Reward | None) -> None:
        """A sample if there is a reward, a hint or a card; else the turn is dismissed with the reason.

        `votes` are new ones; what is stored already (feedback) is not stored again.
        """
        try:
            hinted = any(vote.hint for vote in votes) or self._store.signals.hints(turn_id)
            if reward or hinted or self._has_card(turn_id):
                self._store.signals.settle(turn_id, votes, reward)
                log.info("turn %s: sampled, reward %s", turn_id, reward)
            else:
                self.dismiss(turn_id, votes, NO_SCORE if reward is None else NO_SIGNAL)
        except TransitionRefused as error:
            log.debug("turn %s: judged meanwhile: %s", turn_id, error)

    def _has_card(self, turn_id: str) -> bool:
        adapter_id = self._store.turns.get(turn_id).adapter_id if self._card else None
        return adapter_id is not None and bool(self._store.cards.lines(adapter_id))

    def dismiss(self, turn_id: str, votes: Sequence[Vote], reason: str) -> None:
        try:
            self._store.signals.dismiss(turn_id, votes, reason)
            log.info("turn %s: %s", turn_id, reason)
        except TransitionRefused as error:
            log.debug("turn %s: judged meanwhile: %s", turn_id, error)


class Judging:
    """Feedback, unusable responses and, unless a model judges, the rules."""

    def __init__(self, store: Store, *, model_judges: bool, card: bool = False) -> None:
        self._store = store
        self._verdicts = Verdicts(store, card=card)
        self._model_judges = model_judges
        self._left_to_model: set[str] = set()  # looked at already: only feedback can decide them here

    def tick(self) -> None:
        due = self._store.turns.to_judge(MOST_PER_LOOK)
        self._left_to_model.intersection_update(due)
        for turn_id in due:
            try:
                self._judge(turn_id)
            except (sqlite3.Error, StoreError):
                raise  # the store's trouble is no turn's fault: all wait
            except Exception as error:  # one turn must not hold up the others for ever
                log.exception("turn %s can't be judged", turn_id)
                self._verdicts.dismiss(turn_id, [], f"judging failed: {error}")

    def _judge(self, turn_id: str) -> None:
        feedback = [vote for vote in self._store.signals.votes(turn_id) if vote.judge == FEEDBACK]
        if turn_id in self._left_to_model and not feedback:
            return
        turn = self._store.turns.get(turn_id)
        if turn.adapter_id is None:
            self._verdicts.dismiss(turn_id, [], NO_ADAPTER)
        elif reason := unusable(turn):
            self._verdicts.dismiss(turn_id, [], reason)
        elif feedback:
            self._verdicts.conclude(turn_id, [], feedback[-1].score)
        elif turn.next_state is None:
            pass  # its feedback is on the way
        elif self._model_judges:
            self._left_to_model.add(turn_id)
        else:
            vote = read_by_rules(turn).vote()
            self._verdicts.conclude(turn_id, [vote], vote.score)


class ModelJudging:
    """The votes of a judge model. While its endpoint is down, turns wait and it is asked again after growing pauses."""

    def __init__(
        self,
        store: Store,
        judge: LlmJudge,
        clock: Callable[[], float] = time.monotonic,
        first_pause_s: float = FIRST_PAUSE_S,
        *,
        card: bool = False,
    ) -> None:
        self._store = store
        self._verdicts = Verdicts(store, card=card)
        self._judge = judge
        self._clock = clock
        self._first_pause_s = first_pause_s
        told = store.newest_event((UNREACHABLE, ANSWERS), judge.name)
        self._failures = int(told is not None and told["kind"] == UNREACHABLE)
        self._not_before = 0.0
        self._stopping = False
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    def tick(self) -> None:
        if self._stopping or self._clock() < self._not_before or not self._due():
            return
        try:
            asyncio.run(self._ask_for_all())
        except asyncio.CancelledError:
            log.info("judge calls abandoned: their turns wait")

    def stop(self) -> None:
        """From another thread: abandon the calls in flight; `tick` returns soon."""
        self._stopping = True
        if self._running is not None:
            loop, task = self._running
            try:
                loop.call_soon_threadsafe(task.cancel)
            except RuntimeError:
                log.debug("the judge calls had just ended")

    def _due(self) -> list[Turn]:
        """The oldest turns that only a model can judge, as many as are asked for at once."""
        found = []
        for turn_id in self._store.turns.to_judge(MOST_PER_LOOK):
            if any(vote.judge == FEEDBACK for vote in self._store.signals.votes(turn_id)):
                continue  # `Judging` takes it
            turn = self._store.turns.get(turn_id)
            if turn.adapter_id is not None and turn.next_state is not None and unusable(turn) is None:
                found.append(turn)
            if len(found) == TURNS_AT_ONCE:
                break
        return found

    async def _ask_for_all(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running = (asyncio.get_running_loop(), task)
        try:
            # The judge sets its own limit. No proxy from the environment: requests go where the settings say.
            async with httpx.AsyncClient(timeout=None, trust_env=False) as client:  # noqa: S113
                while not self._stopping and (turns := self._due()):
                    outcomes = await asyncio.gather(
                        *(self._ask(client, turn) for turn in turns), return_exceptions=True
                    )
                    failed = [outcome for outcome in outcomes if isinstance(outcome, JudgeUnreachable)]
                    for outcome in outcomes:
                        if isinstance(outcome, BaseException) and not isinstance(outcome, JudgeUnreachable):
                            raise outcome
                    if failed:
                        self._wait(str(failed[0]))
                        return
                    self._answers_again()
        finally:
            self._running = None

    async def _ask(self, client: httpx.AsyncClient, turn: Turn) -> None:
        votes = await self._judge.votes(client, turn)
        reading = read_by_rules(turn)
        reward = majority(votes)
        if reading.veto:
            veto = Vote(judge_rules.JUDGE, -1, f"veto: {', '.join(reading.rules)}", reading.hint)
            votes, reward = [*votes, veto], -1
        self._verdicts.conclude(turn.id, votes, reward)

    def _wait(self, problem: str) -> None:
        if not self._failures:
            self._store.event(UNREACHABLE, self._judge.name, problem=problem)
        self._failures += 1
        pause_s = min(self._first_pause_s * 2.0 ** (self._failures - 1), LONGEST_PAUSE_S)
        self._not_before = self._clock() + pause_s
        log.warning("the judge: %s; turns wait, next try in %g s", problem, pause_s)

    def _answers_again(self) -> None:
        if self._failures:
            self._store.event(ANSWERS, self._judge.name, failures=self._failures)
        self._failures = 0


def read_by_rules(turn: Turn) -> judge_rules.Reading:
    """What the rules say about a turn that has a next state."""
    return judge_rules.judge(judge_rules.last_user_text(turn.messages), turn.response_text, turn.next_state or [])
