"""The store: every conversation, signal, sample, update and version, in one SQLite file. See `clawd.store.store`."""

from clawd.store.store import Store

__all__ = ["Store"]
