"""What memory the next update is computed to take, for `clawd train --dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from clawd.config import LearnSettings
from clawd.learner.budget import MIB, Work
from clawd.learner.room import expected, room_waits_for
from clawd.store.story import Lesson


def expected_memory(base: Path, lessons: Sequence[Lesson], learn: LearnSettings) -> dict[str, Any] | None:
    """In 2²⁰ bytes; None: it may be computed on a GPU, or can't be told for this model."""
    free_mb = psutil.virtual_memory().available / MIB
    lengths = [one.prompt_tokens + one.response_tokens for one in lessons]
    longest = max((length for length in lengths if length <= learn.max_sample_tokens), default=0)
    work = Work(longest, max((len(one.hints) for one in lessons), default=0))
    budget = expected(base, work, learn, free_mb)
    if budget is None:
        return None
    return {
        "needed_mb": budget.total_mb,
        "free_mb": round(free_mb),
        "checkpointing": budget.form.checkpointing,
        "parts_mb": {name: round(size / MIB) for name, size in budget.parts.items()},
        "problem": room_waits_for(base, work, learn, free_mb),
    }


def show_memory(console: Console, memory: dict[str, Any] | None) -> None:
    if memory is None:
        return
    parts = ", ".join(f"{name} {size}" for name, size in memory["parts_mb"].items())
    how = ", layers computed again for the backward pass" if memory["checkpointing"] else ""
    console.print(
        f"It is computed to need {memory['needed_mb']} MB of memory{how}; {memory['free_mb']} MB are free. ({parts})",
        soft_wrap=True,
    )
    if memory["problem"]:
        console.print(f"{memory['problem']}.", soft_wrap=True)
