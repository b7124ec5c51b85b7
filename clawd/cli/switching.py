"""Have another adapter version serve: by the server while a daemon runs, in the store alone while none does."""

from __future__ import annotations

import time

from filelock import FileLock, Timeout

from clawd.daemon import record
from clawd.doorbell import ring
from clawd.errors import AdapterRejected, AlreadyRunning, NotRunning
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.records import Adapter, Version

POLL_S = 0.05


def serve(folder: DataFolder, store: Store, adapter: Adapter, version: Version | None, why: str) -> None:
    """Return when `version` (none: the bare base) answers the adapter's new requests, or will from the next start on.

    Raises:
        AdapterRejected: the server can't load it; what served goes on serving.
        NotRunning: the daemon ended before it could; it will at its next start.
        AlreadyRunning: a daemon is just starting.
        UnknownName: the version is none that could serve.
    """
    version_id = version.id if version else None
    if record.running(folder) is None:
        try:
            with FileLock(folder.lock_file, timeout=0, mode=0o600):  # no daemon starts meanwhile and reads the old one
                store.lifecycle.choose(adapter.id, version_id)
        except Timeout:
            raise AlreadyRunning("A daemon is starting or ending on this folder: try again in a moment.") from None
        store.event("version_switched", adapter.id, number=version.number if version else None, by="person", why=why)
        return
    _ask_server(folder, store, adapter, version_id, why)


def _ask_server(folder: DataFolder, store: Store, adapter: Adapter, version_id: str | None, why: str) -> None:
    switch = store.lifecycle.ask(adapter.id, version_id, "person", why)
    ring(folder.server_bell)
    while switch.state == "waiting":
        if record.running(folder) is None:
            raise NotRunning("The daemon has ended before it could switch; it will when it is started again.")
        time.sleep(POLL_S)
        switch = store.lifecycle.switch(switch.id)
    if switch.state == "refused":
        raise AdapterRejected(f"{adapter.name!r} stays as it is: {switch.reason}")
