"""clawd's own API under `/clawd/v1`: explicit feedback, a turn and what came of it, status."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import ConfigDict, Field, model_validator
from starlette.requests import Request

from clawd.errors import NotAllowed
from clawd.server.auth import identify
from clawd.server.body import Body
from clawd.server.documents import ErrorBody, FeedbackResult, TurnView
from clawd.server.errors import ApiError
from clawd.server.services import Services
from clawd.server.status import status
from clawd.server.wire import turn_of_response
from clawd.store.records import Turn, User, Vote
from clawd.store.signals import FEEDBACK, FeedbackEffect

NOTES: dict[FeedbackEffect, str] = {
    "judging": "the turn is judged now",
    "sample changed": "the sample that was waiting is changed",
    "none": "stored, but too late to be learnt from",
}


class Feedback(Body):
    """A person's own verdict on one answer; it outranks every judge."""

    model_config = ConfigDict(extra="forbid")

    turn_id: str | None = None
    response_id: str | None = None
    score: Literal[-1, 0, 1]
    hint: Annotated[str, Field(max_length=2000)] | None = None

    @model_validator(mode="after")
    def _names_one_turn(self) -> Feedback:
        if (self.turn_id is None) == (self.response_id is None):
            raise ValueError("send either turn_id or response_id")
        return self

    @property
    def turn(self) -> str:
        return self.turn_id or turn_of_response(self.response_id or "")


def make_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/clawd/v1")

    @router.post("/feedback", responses={200: {"model": FeedbackResult}, 409: {"model": ErrorBody}})
    def feedback(request: Request, given: Feedback) -> dict[str, Any]:
        user = identify(services.store, request, services.owner_key)
        turn = _own_turn(services, user, given.turn)
        if turn.kind != "main" or turn.adapter_id is None:
            raise ApiError(409, "This turn can't be learnt from: it is a side turn, or the bare base answered it.")
        if turn.state == "recorded":
            raise ApiError(409, "This turn is still being answered: send the feedback when it has ended.")
        hint = (given.hint or "").strip() or None
        vote = Vote(FEEDBACK, given.score, FEEDBACK, hint)
        effect = services.store.signals.feedback(turn.id, vote)
        if effect == "judging":
            services.ring_learner()
        return {"turn_id": turn.id, "applied": effect != "none", "note": NOTES[effect]}

    @router.get("/turns/{turn_id}", responses={200: {"model": TurnView}})
    def get_turn(request: Request, turn_id: str) -> dict[str, Any]:
        turn = _own_turn(services, identify(services.store, request, services.owner_key), turn_of_response(turn_id))
        return _describe(services, turn)

    @router.get("/status")
    def get_status(request: Request) -> dict[str, Any]:
        return status(services, identify(services.store, request, services.owner_key))

    return router


def _own_turn(services: Services, user: User, turn_id: str) -> Turn:
    """Raises UnknownName, or NotAllowed for another user's turn."""
    turn = services.store.turns.get(turn_id)
    if turn.user_id != user.id:
        raise NotAllowed("This turn is another user's.")
    return turn


def _describe(services: Services, turn: Turn) -> dict[str, Any]:
    sample = services.store.signals.sample_of(turn.id)
    votes = services.store.signals.votes(turn.id)
    return {
        "turn_id": turn.id,
        "session_id": turn.session_id,
        "kind": turn.kind,
        "state": turn.state,
        "reason": turn.reason,
        "version_id": turn.version_id,
        "messages": turn.messages,
        "response": turn.response_text,
        "finish_reason": turn.finish_reason,
        "prompt_tokens": len(turn.prompt_ids),
        "response_tokens": len(turn.response_ids),
        "next_state": turn.next_state,
        "votes": [
            {"judge": vote.judge, "score": vote.score, "reason": vote.reason, "hint": vote.hint} for vote in votes
        ],
        "sample": {"state": sample.state, "reward": sample.reward} if sample else None,
    }
