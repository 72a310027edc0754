"""When a call may be sent again: only where the first attempt did nothing, or a second one does no harm."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..errors import ConnectionError, DsecError, is_interruption

T = TypeVar("T")


async def retrying(attempt: Callable[[], Awaitable[T]], *, within: float, harmless: bool, held_open: bool = False) -> T:
    """Calls `attempt` until it answers, fails for good, or `within` seconds since the first interruption are over.

    Args:
        harmless: A second call does no harm, even if the first one was carried out.
        held_open: Attempts last as long as a command: one that was open for a second starts the time anew.
    """
    end = 0.0
    attempts = 0
    while True:
        began = time.monotonic()
        try:
            return await attempt()
        except DsecError as error:
            if not is_interruption(error) or not (harmless or error.outcome != "unknown"):
                raise
            now = time.monotonic()
            if attempts == 0 or (held_open and isinstance(error, ConnectionError) and error.sent and now - began > 1.0):
                end = now + within
                attempts = 0
            wait = pause(attempts, error.retry_after)
            if now + wait > end:
                raise
            attempts += 1
        await asyncio.sleep(wait)


def pause(attempts: int, retry_after: float = 0.0) -> float:
    """Seconds before the next attempt: what the server asked, else 20 ms doubled up to 1 s; jitter of ± 50 %."""
    base = retry_after if retry_after > 0 else min(1.0, 0.02 * 2 ** min(attempts, 10))
    return base * (0.5 + random.random())
