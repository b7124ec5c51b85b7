"""How much of the queue there is, and how much of it one user may take. Which of the waiting requests begins next is
the scheduler's affair."""

from __future__ import annotations

import math

from clawd.server.errors import RETRY_AFTER_S, ApiError
from clawd.server.services import Services
from clawd.store.records import User


def check_room(services: Services) -> None:
    """Returns if there is room for one more request, whoever asks.

    Raises:
        ApiError: 429, to come back in a moment.
    """
    server = services.settings.server
    if services.in_flight >= server.max_running + server.max_waiting:
        raise ApiError(
            429,
            f"{services.in_flight} requests are being answered or wait: come back in a moment.",
            code="queue_full",
            retry_after_s=RETRY_AFTER_S,
        )


def check_share(services: Services, user: User) -> None:
    """Returns if `user` may send one more request.

    All places where requests are answered count as well: alone, a user fills them, and their share of the queue.

    Raises:
        ApiError: 429, to come back when one of theirs has ended.
    """
    server = services.settings.server
    most = server.max_running + math.ceil(server.max_waiting * server.max_waiting_share)
    mine = services.in_flight_of[user.id]
    if mine >= most:
        raise ApiError(
            429,
            f"{mine} of your requests are being answered or wait, and one user may have {most}: come back in a moment.",
            code="queue_share_full",
            retry_after_s=RETRY_AFTER_S,
        )
