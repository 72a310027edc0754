"""Unary calls as the library makes them: an attempt has a time limit, and what may be repeated is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .._wire.codec import Message, Method
from .retry import retrying
from .transport import Transport

I = TypeVar("I", bound=Message)  # noqa: E741
O = TypeVar("O", bound=Message)  # noqa: E741


class Calls:
    def __init__(self, http: Transport, request_timeout: float) -> None:
        self.http = http
        #: Seconds for one call, and within which an interrupted one is taken up again.
        self.request_timeout = request_timeout

    @property
    def retry_within(self) -> float:
        """Seconds for further attempts: short while nothing ever answered there, so that a wrong address shows."""
        return self.request_timeout if self.http.answered else min(1.0, self.request_timeout)

    async def call(
        self,
        method: Method[I, O],
        message: I,
        *,
        sandbox_id: str = "",
        harmless: bool = True,
        timeout: float | None = None,
        long: bool = False,
        once: bool = False,
    ) -> O:
        """Makes a call.

        Args:
            harmless: A second call does no harm even if the first was carried out.
            timeout: Seconds for one attempt; 0: none. Default: the client's `request_timeout`.
            long: Open for as long as a command runs.
            once: Never sent again by the library.
        """
        limit = self.request_timeout if timeout is None else timeout

        async def attempt() -> O:
            return await self.http.unary(method, message, sandbox_id=sandbox_id, timeout=limit, long=long)

        if once:
            return await attempt()
        return await retrying(attempt, within=self.retry_within, harmless=harmless, held_open=long)

    async def later(self, work: Callable[[], Awaitable[object]]) -> asyncio.Task[None]:
        """Starts work that goes on when its caller has left; its failure interests nobody. It may be begun twice."""
        pool = await self.http.pool()
        task = pool.loop.create_task(_seen_through(work))
        pool.afterwards.add(task)
        task.add_done_callback(pool.afterwards.discard)
        return task

    async def settled(self) -> None:
        """Waits for what goes on after its caller has left."""
        pool = await self.http.pool()
        while pool.afterwards:
            await asyncio.wait(pool.afterwards)


async def _seen_through(work: Callable[[], Awaitable[object]]) -> None:
    """`asyncio.run` cancels what is left at its end and waits for it: the work is then begun anew, once."""
    for _ in range(2):
        try:
            await work()
            return
        except asyncio.CancelledError:
            continue
        except Exception:
            return
