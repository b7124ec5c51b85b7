"""Who may speak to this server at all, before any route sees the request.

On loopback a browser is the danger: any page that a person visits can make it send requests to this machine, directly
or through a name that resolves to it. So `Host` must name this machine, and `Origin`, which only browsers send, too.
On any other address every request needs a key. Bodies are bounded in both cases.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clawd.config import ServerSettings
from clawd.loopback import is_loopback
from clawd.server.auth import key_of
from clawd.server.errors import Fault, respond
from clawd.store import Store


class AccessGuard:
    """ASGI middleware. Refusals have the API's own error shape and no CORS headers."""

    def __init__(self, app: ASGIApp, store: Store, settings: ServerSettings, owner_key: str | None) -> None:
        self._app = app
        self._store = store
        self._owner_key = owner_key
        self._on_loopback = is_loopback(settings.host)
        self._allowed_hosts = frozenset(host.lower() for host in settings.allowed_hosts)
        self._max_body = settings.max_body_mb * 1_000_000

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(Headers(scope=scope))
        if refusal is not None:
            await respond(scope["path"], refusal)(scope, receive, send)
            return
        await self._app(scope, _bounded(receive, self._max_body), send)

    def _refusal(self, headers: Headers) -> Fault | None:
        if self._on_loopback:
            if not self._names_this_machine(headers.get("host"), headers.getlist("origin")):
                return Fault(403, "This server answers to its own machine's names only.", "forbidden_host")
        elif not self._has_key(headers):
            return Fault(401, "A key is needed: `clawd user add NAME` makes one.", "invalid_api_key")
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > self._max_body:
            return Fault(413, too_large(self._max_body), "request_too_large")
        return None

    def _names_this_machine(self, host: str | None, origins: Iterable[str]) -> bool:
        named = [_host_of(f"//{host}")] if host is not None else []
        return all(self._is_allowed(name) for name in [*named, *map(_host_of, origins)])

    def _is_allowed(self, host: str | None) -> bool:
        return host is not None and (is_loopback(host) or host in self._allowed_hosts)

    def _has_key(self, headers: Headers) -> bool:
        key = key_of(headers)
        if key is None:
            return False
        if self._owner_key is not None and secrets.compare_digest(key.encode(), self._owner_key.encode()):
            return True
        return self._store.people.with_key(key) is not None


def too_large(limit: int) -> str:
    return f"The request is larger than {limit / 1e6:g} MB: shorten it, or raise server.max_body_mb."


def _host_of(url: str) -> str | None:
    """The host of an origin or a `//host:port`; None: it names none (`null`, or garbage)."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _bounded(receive: Receive, limit: int) -> Receive:
    """`receive` that fails once a body without a stated length has grown past `limit`."""
    seen = 0

    async def bounded() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise HTTPException(413, too_large(limit))  # the one kind that FastAPI lets pass while it reads
        return message

    return bounded
