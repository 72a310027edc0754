"""Connections of one event loop: kept alive, bounded, and closed with the loop.

At most `limit` calls are on the way at once; the others wait here in order. A call that stays open for long (a command
that runs, a stream, a terminal) stops counting after a while, so that many of them cannot lock out the calls that would
end them.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from ..errors import DsecError
from ..settings import Settings
from .connection import Connection, open_connection

#: Seconds after which a call that may be long stops counting: ten times what short calls take now, within these.
_LONG = 1.0
_LONGEST = 10.0
#: Seconds without use after which a connection is not used again: less than the server's own keep-alive.
_IDLE = 15.0
#: Creates on the way at once: some connections stay free for what the sandboxes are used for.
_CREATES_SHARE = 0.75


class Slot:
    """A place among the calls that are on the way."""

    __slots__ = ("_began", "_pool", "_timer")

    def __init__(self, pool: Pool, long: bool) -> None:
        self._pool: Pool | None = pool
        self._began = pool.loop.time()
        self._timer = pool.loop.call_later(_LONG, self._look) if long else None

    def _look(self) -> None:
        """On a server that is slow with everything a short command is no long call yet."""
        if self._pool is not None:
            end = self._began + min(_LONGEST, max(_LONG, 10 * self._pool.usual))
            if end > self._pool.loop.time():
                self._timer = self._pool.loop.call_at(end, self._look)
            else:
                self.release()

    def release(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            if self._timer is None:
                pool.usual += (pool.loop.time() - self._began - pool.usual) / 20
            else:
                self._timer.cancel()
            pool.give_back()


class Pool:
    def __init__(self, loop: asyncio.AbstractEventLoop, settings: Settings, limit: int) -> None:
        self.loop = loop
        self.pid = os.getpid()
        url = urlsplit(settings.endpoint)
        self._host = url.hostname or ""
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._port = url.port or (443 if self._tls else 80)
        self._limit = limit
        self._taken = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._creates = asyncio.Semaphore(max(1, int(limit * _CREATES_SHARE)))
        #: Creates that are under way, and those that wait for their turn.
        self.creating = 0
        self.creates_waiting = 0
        self.closed = False
        #: Seconds that short calls take, on average of the last ones.
        self.usual = 0.0
        #: Work that goes on after its caller has left.
        self.afterwards: set[asyncio.Task[None]] = set()
        self._guard: AsyncGenerator[None, None] | None = None

    async def guard(self) -> None:
        """Closes with the loop: `asyncio.run` ends open generators before it closes its loop. The generator of a client
        that is forgotten is ended by the loop too."""

        async def until_the_end() -> AsyncGenerator[None, None]:
            try:
                yield
            finally:
                self.close()

        self._guard = until_the_end()
        await self._guard.__anext__()

    @asynccontextmanager
    async def create(self) -> AsyncIterator[None]:
        """A turn among the creates: they wait for each other here and not at the server."""
        self.creates_waiting += 1
        try:
            await self._creates.acquire()
        finally:
            self.creates_waiting -= 1
        self.creating += 1
        try:
            yield
        finally:
            self.creating -= 1
            self._creates.release()

    @property
    def connections(self) -> int:
        return len(self._all)

    @property
    def calls(self) -> int:
        return self._taken

    @property
    def calls_waiting(self) -> int:
        return len(self._waiters)

    async def slot(self, long: bool) -> Slot:
        """Waits for a place in the order of asking."""
        if self._taken < self._limit and not self._waiters:
            self._taken += 1
            return Slot(self, long)
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                # A place came in the same moment: it is for the next one.
                self.give_back()
            else:
                self._forget(waiter)
            raise
        return Slot(self, long)

    def _forget(self, waiter: asyncio.Future[None]) -> None:
        try:
            self._waiters.remove(waiter)
        except ValueError:
            pass

    def give_back(self) -> None:
        self._taken -= 1
        while self._waiters and self._taken < self._limit:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._taken += 1
                waiter.set_result(None)

    async def connection(self, timeout: float) -> Connection:
        """One that is free, or a new one. @raises ConnectionError: with `sent` false"""
        if self.closed:
            raise DsecError("CANCELLED", "the client is closed")
        oldest = self.loop.time() - _IDLE
        while self._idle:
            connection = self._idle.pop()
            if connection.closed:
                continue
            if connection.idle_since > oldest:
                return connection
            connection.abort()
        return await self.new_connection(timeout)

    async def new_connection(self, timeout: float) -> Connection:
        connection = await open_connection(self.loop, self._host, self._port, self._tls, timeout)
        if self.closed:
            connection.abort()
            raise DsecError("CANCELLED", "the client is closed")
        self._all.add(connection)
        connection.on_closed = self._all.discard
        return connection

    def give(self, connection: Connection) -> None:
        """Takes a connection back: kept where the exchange ended well, else ended."""
        response = connection.last
        if (
            not self.closed
            and response is not None
            and response.complete
            and response.keep_alive
            and not connection.closed
            and len(self._idle) < self._limit
        ):
            self._idle.append(connection)
            return
        connection.abort()

    def close(self) -> None:
        """Ends every open exchange. Called in the loop's thread."""
        if self.closed:
            return
        self.closed = True
        for connection in list(self._all):
            connection.abort(DsecError("CANCELLED", "the client is closed"))
        self._idle.clear()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(DsecError("CANCELLED", "the client is closed"))
        self._waiters.clear()
