"""A connection that is held for one exchange.

Classes and not generators: at the end of a program the loop closes all generators at once, each by itself, so what is
open must be put away without one having to wait for another.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING

from ..errors import DsecError
from .connection import Connection, Response
from .pool import Pool, Slot

if TYPE_CHECKING:
    from .transport import Transport


class Held:
    """Ended at the end of the block, unless the exchange went through: then it is kept for the next one."""

    def __init__(self, http: Transport, path: str, *, long: bool, timeout: float = 0.0) -> None:
        self._http = http
        self._path = path
        self._long = long
        self._timeout = timeout
        self._pool: Pool | None = None
        self._slot: Slot | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._connection: Connection | None = None

    async def __aenter__(self) -> Connection:
        pool = self._pool = await self._http.pool()
        self._slot = await pool.slot(self._long)
        try:
            connection = self._connection = await pool.connection(min(self._timeout or 60.0, 60.0))
        except BaseException:
            self._slot.release()
            raise
        if self._timeout > 0:
            late = f"no answer from {self._http.settings.endpoint} within {self._timeout:g} s ({self._path})"
            error = DsecError("DEADLINE_EXCEEDED", late, outcome_unknown=True)
            self._timer = pool.loop.call_later(self._timeout, connection.abort, error)
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(error is None)

    def end(self, well: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None and self._pool is not None:
            if self._connection.last is not None:
                self._http.answered = True
            if not well:
                self._connection.abort()
            self._pool.give(self._connection)
        if self._slot is not None:
            self._slot.release()


class Opened:
    """An answer that is long: its head is there and good when the block begins, its body comes as it is read."""

    def __init__(self, http: Transport, head: bytes, body: bytes, path: str, good: tuple[int, ...]) -> None:
        self._http = http
        self._held = Held(http, path, long=True)
        self._head = head
        self._body = body
        self._good = good

    async def __aenter__(self) -> tuple[Connection, Response]:
        connection = await self._held.__aenter__()
        try:
            connection.send(self._head, self._body)
            response = await connection.response()
            if response.status not in self._good:
                raise self._http.error(await connection.whole())
        except BaseException:
            self._held.end(False)
            raise
        return connection, response

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.end(error is None)
