"""The listening socket, and asking the server behind it. Standard library only: the daemon itself stays small."""

from __future__ import annotations

import errno
import http.client
import json
import socket
from contextlib import closing
from typing import Any

from clawd.errors import ConfigError, NotRunning, PortTaken

BACKLOG = 2048
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  nothing is bound here


def listen(host: str, port: int) -> socket.socket:
    """Bind and listen, before anything is loaded. The server gets this socket; while it restarts, callers wait in line.

    Raises:
        PortTaken: another program listens there.
        ConfigError: the address isn't one of this machine, or may not be bound.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"server.host: {host!r} is no address: {error}") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"Another program listens on {host} port {port}: choose another port with --server.port, or stop it."
            ) from None
        raise ConfigError(f"server.host, server.port: can't listen on {host} port {port}: {error.strerror}") from None
    return listener


def local_host(host: str) -> str:
    """Where a client on this machine reaches a server that listens on `host`."""
    return ANY_ADDRESS.get(host, host)


def url_of(host: str, port: int) -> str:
    local = local_host(host)
    return f"http://[{local}]:{port}" if ":" in local else f"http://{local}:{port}"


def answers(host: str, port: int, path: str, timeout_s: float, key: str | None = None) -> bool:
    """Whether GET `path` is answered with 200 in time."""
    try:
        return _get(host, port, path, timeout_s, key)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def get_object(host: str, port: int, path: str, timeout_s: float, key: str | None = None) -> dict[str, Any]:
    """The JSON object that GET `path` answers.

    Raises:
        NotRunning: no answer, or not such a one; the text says why.
    """
    try:
        status, body = _get(host, port, path, timeout_s, key)
        if status != 200:
            raise NotRunning(f"the server answers {path} with status {status}")
        answer = json.loads(body)
    except (OSError, http.client.HTTPException) as error:
        raise NotRunning(f"the server doesn't answer {path}: {error}") from None
    except ValueError:
        raise NotRunning(f"the server's answer to {path} is no JSON") from None
    if not isinstance(answer, dict):
        raise NotRunning(f"the server's answer to {path} is no JSON object")
    return answer


def _get(host: str, port: int, path: str, timeout_s: float, key: str | None) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection(local_host(host), port, timeout=timeout_s)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        return response.status, response.read()
