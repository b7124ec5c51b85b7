"""The states that a row goes through, as data: the schema's triggers and `verify()` read them here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    first: frozenset[str]
    steps: frozenset[tuple[str, str]]
    needs_reason: frozenset[str] = frozenset()

    @property
    def states(self) -> frozenset[str]:
        return self.first | {after for _, after in self.steps}


STATES: dict[str, Machine] = {
    "sessions": Machine(
        first=frozenset({"open"}),
        steps=frozenset({("open", "closed"), ("closed", "open")}),  # a conversation may go on after days
        needs_reason=frozenset({"closed"}),
    ),
    "turns": Machine(
        first=frozenset({"recorded"}),
        steps=frozenset(
            {
                ("recorded", "waiting"),
                ("recorded", "discarded"),
                ("waiting", "judging"),
                ("waiting", "discarded"),
                ("judging", "sampled"),
                ("judging", "discarded"),
                # A turn that looked retried, was one of several, or whose session was closed, may be continued or given
                # feedback after all.
                ("discarded", "judging"),
            }
        ),
        needs_reason=frozenset({"discarded"}),
    ),
    "samples": Machine(
        first=frozenset({"waiting"}),
        steps=frozenset(
            {
                ("waiting", "claimed"),
                ("waiting", "quarantined"),
                ("claimed", "waiting"),  # its update failed
                ("claimed", "used"),
                ("claimed", "quarantined"),
                ("quarantined", "waiting"),  # feedback that took its signal was itself taken back
            }
        ),
        needs_reason=frozenset({"quarantined"}),
    ),
    "updates": Machine(
        first=frozenset({"running", "active"}),  # active at once: a version that was imported or copied, not trained
        steps=frozenset(
            {
                ("running", "staged"),
                ("running", "refused"),
                ("running", "failed"),
                ("staged", "active"),
                ("staged", "refused"),
            }
        ),
        needs_reason=frozenset({"refused", "failed"}),
    ),
    "adapter_versions": Machine(
        first=frozenset({"staged", "retired"}),  # retired at once: imported or copied, served when somebody chooses it
        steps=frozenset(
            {
                ("staged", "active"),
                ("staged", "rejected"),
                ("active", "retired"),
                ("retired", "active"),  # rollback
                ("retired", "pruned"),  # its files go, its row stays: what it learnt from can still be told
            }
        ),
        needs_reason=frozenset({"rejected", "pruned"}),
    ),
    "switches": Machine(
        first=frozenset({"waiting"}),
        steps=frozenset({("waiting", "done"), ("waiting", "refused")}),
        needs_reason=frozenset({"refused"}),
    ),
}

ALTERNATIVE = "alternative"
"""Why an answer is put aside that was one of several to one request: which one a person took shows only when the
conversation goes on from it, or in their feedback."""

REVIVABLE = frozenset({"retried", "no next state", ALTERNATIVE})
"""Reasons of a discarded turn that a late continuation or feedback overrules."""


def can_be_judged(state: str, reason: str | None) -> bool:
    """Whether a turn may go to the judge from here, or is there already."""
    return state in ("waiting", "judging") or (state == "discarded" and reason in REVIVABLE)
