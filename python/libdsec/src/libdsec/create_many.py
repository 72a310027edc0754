"""A burst: many single creates with their own keys, a bounded number of them in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

from .command_options import whole_number
from .errors import DsecError
from .sandbox import Sandbox


@dataclass(frozen=True)
class CreateManyResult:
    """One for each that was asked: a sandbox, or why there is none."""

    index: int
    sandbox: Sandbox | None
    error: DsecError | None


async def create_many(
    one: Callable[[], Awaitable[Sandbox]], count: int, concurrency: int
) -> AsyncGenerator[CreateManyResult, None]:
    """Yields as many results as were asked, in the order in which they become ready. A caller that leaves early ends
    what is under way, and what it was not given yet is stopped."""
    if not isinstance(count, int):
        raise DsecError("INVALID_ARGUMENT", f"count is {count}; it must be a whole number of at least 0")
    wanted = whole_number(count, "count")
    if whole_number(concurrency, "concurrency") < 1:
        raise DsecError("INVALID_ARGUMENT", f"concurrency is {concurrency}; it must be at least 1")
    ready: asyncio.Queue[CreateManyResult] = asyncio.Queue()
    numbers = iter(range(wanted))

    async def lane() -> None:
        for index in numbers:
            try:
                ready.put_nowait(CreateManyResult(index, await one(), None))
            except DsecError as error:
                ready.put_nowait(CreateManyResult(index, None, error))

    lanes = [asyncio.ensure_future(lane()) for _ in range(min(concurrency, wanted))]
    try:
        for _ in range(wanted):
            getting = asyncio.ensure_future(ready.get())
            try:
                while not getting.done():
                    await asyncio.wait(
                        {getting, *(each for each in lanes if not each.done())}, return_when="FIRST_COMPLETED"
                    )
                    for each in lanes:
                        if each.done():
                            each.result()
            finally:
                getting.cancel()
            yield getting.result()
    finally:
        for each in lanes:
            each.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
        left = [ready.get_nowait() for _ in range(ready.qsize())]
        await asyncio.gather(*(each.sandbox.stop() for each in left if each.sandbox), return_exceptions=True)
