"""The memories of one run: which kind an arm has, what it needs, and its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from clawd.bench.daemon import ThrowAwayDaemon
from clawd.bench.personalize.arms import MemoryKind
from clawd.bench.personalize.mem0_memory import Mem0Memory, require_mem0
from clawd.bench.personalize.memory import Memory, Notes
from clawd.model.vocab import Vocabulary


def require_memory(kind: MemoryKind | None, model: Path) -> None:
    """Before anything is measured.

    Raises:
        MissingExtra: `kind` needs one.
        BenchFailed: `model` is too small for it.
    """
    if kind in ("mem0", "mem0-raw"):
        with Vocabulary.open(model) as vocabulary:
            require_mem0(vocabulary.info.trained_context, extracts=kind == "mem0")


@contextmanager
def memories(
    kind: MemoryKind | None, users: Sequence[str], daemon: ThrowAwayDaemon, base: str
) -> Iterator[Mapping[str, Memory]]:
    """One of each user; of none without a `kind`. `base` is the name of the daemon's bare model."""
    with ExitStack() as stack:
        made = {user: _memory(kind, user, daemon, base) for user in users} if kind else {}
        for memory in made.values():
            stack.enter_context(closing(memory))
        yield made


def _memory(kind: MemoryKind, user: str, daemon: ThrowAwayDaemon, base: str) -> Memory:
    if kind == "notes":
        return Notes()
    folder = daemon.folder.root / f"mem0-{user}"  # goes with the daemon
    return Mem0Memory(daemon.url, base, folder, user, extracts=kind == "mem0")
