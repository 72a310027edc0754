"""The event loop behind the synchronous twin: one thread a process, made with the first call, ended at exit.

A loop of its own works wherever the caller is: in a plain script, in a thread, in a notebook whose own loop runs.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class EndedError(RuntimeError):
    """The interpreter ends, and the loop has ended before."""


_END: Any = object()


class Portal:
    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        ready = threading.Event()
        self._thread = threading.Thread(target=self._main, args=(ready,), name="libdsec", daemon=True)
        self._thread.start()
        ready.wait()
        atexit.register(self.end)

    def _main(self, ready: threading.Event) -> None:
        async def until_stopped() -> None:
            self._loop = asyncio.get_running_loop()
            self._stop = asyncio.Event()
            ready.set()
            await self._stop.wait()

        asyncio.run(until_stopped())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it in the portal's loop and waits. An interrupt (Ctrl-C) cancels it."""
        if self._loop is None or not self._thread.is_alive():
            work.close()
            raise EndedError("the interpreter is ending")
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a synchronous call inside libdsec's own loop; use libdsec.DSecClient there")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def end(self) -> None:
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)


_portal: Portal | None = None
_making = threading.Lock()


def portal() -> Portal:
    global _portal
    with _making:
        if _portal is None:
            _portal = Portal()
        return _portal


def _forked() -> None:
    # The parent's thread is not here.
    global _portal, _making
    if _portal is not None:
        atexit.unregister(_portal.end)
    _portal = None
    _making = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def run(work: Coroutine[Any, Any, T]) -> T:
    return portal().run(work)


def iterate(source: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
    """An asynchronous iterator as a synchronous one; leaving the loop closes it."""

    async def begin() -> AsyncIterator[T]:
        return source()

    async def following(iterator: AsyncIterator[T]) -> T:
        try:
            return await iterator.__anext__()
        except StopAsyncIteration:
            return _END  # type: ignore[no-any-return]

    async def close(iterator: AsyncIterator[T]) -> None:
        closing = getattr(iterator, "aclose", None)
        if closing is not None:
            await closing()

    iterator = run(begin())
    try:
        while (item := run(following(iterator))) is not _END:
            yield item
    finally:
        # What is still open when the interpreter ends went with the loop.
        with contextlib.suppress(EndedError):
            run(close(iterator))


def callback(told: Callable[[bytes], object] | None) -> Callable[[bytes], Awaitable[None]] | None:
    """A caller's function, called beside the loop, so that it may use the library itself."""
    if told is None:
        return None

    async def tell(data: bytes) -> None:
        await asyncio.to_thread(told, data)

    return tell
