"""What the service manager hears: the sd_notify(3) protocol. Without NOTIFY_SOCKET everything here does nothing."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping

log = logging.getLogger(__name__)


class Notifier:
    """Takes the service manager's variables out of `environ`, so that no child speaks in the daemon's name."""

    def __init__(self, environ: MutableMapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        address = environ.pop("NOTIFY_SOCKET", None)
        period_us = environ.pop("WATCHDOG_USEC", None)
        watched_pid = environ.pop("WATCHDOG_PID", None)
        # A leading @ stands for the NUL byte of Linux' abstract socket names.
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        meant = watched_pid is None or int(watched_pid) == os.getpid()
        self.watchdog_s = int(period_us) / 1e6 if self._address and period_us and meant else None

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self, within_s: float) -> None:
        """Announce the end, and that it may take `within_s`: more than the unit's TimeoutStopSec if need be."""
        self._send(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={int(within_s * 1e6)}")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            try:
                sender.sendto(message.encode(), self._address)
            except OSError as error:
                # Serving doesn't depend on the service manager; that it restarts us for its silence is its right.
                log.warning("The service manager can't be told %r: %s", message.partition("\n")[0], error)
