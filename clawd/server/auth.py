"""Who asks. A key names its user; who sends none on loopback is `default`, and so is everybody until keys exist."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.requests import Request

from clawd.server.errors import ApiError
from clawd.store import Store
from clawd.store.records import DEFAULT_USER, User


def key_of(headers: Headers) -> str | None:
    """The key of an `Authorization: Bearer` header, or of Anthropic's `x-api-key`; None: there is none."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    key = bearer if scheme.lower() == "bearer" and bearer.strip() else headers.get("x-api-key", "")
    return key.strip() or None


def identify(store: Store, request: Request, owner_key: str | None = None) -> User:
    """The user of a request.

    Clients of OpenAI's API insist on sending some key, so as long as no user has one, any is taken for `default`. The
    owner's key, made anew at each start and readable by the daemon's own user alone, is `default` too.

    Raises:
        ApiError: 401 for a key that is nobody's, once keys exist.
    """
    key = key_of(request.headers)
    if key is not None and key != owner_key:
        user = store.people.with_key(key)
        if user is not None:
            return user
        if any(user.has_key for user in store.people.all()):
            raise ApiError(401, "This key is nobody's: `clawd user add NAME` makes one.", code="invalid_api_key")
    return store.people.named(DEFAULT_USER)
