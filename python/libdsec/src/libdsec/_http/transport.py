"""Exchanges with the endpoint. No retries here: retry.py decides about those."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

from .. import __version__
from .._wire.codec import Message, Method, WireError, decode
from .._wire.wire_error import error_of_body
from ..errors import DsecError
from ..settings import Settings
from .connection import Response
from .held import Held, Opened
from .pool import Pool

I = TypeVar("I", bound=Message)  # noqa: E741
O = TypeVar("O", bound=Message)  # noqa: E741

#: Pools of a parent process: their sockets and their loop's poll set are the parent's, so they are never touched again.
_of_parents: list[Pool] = []


class Transport:
    def __init__(self, settings: Settings, max_connections: int) -> None:
        self.settings = settings
        #: A server has answered at this endpoint at least once.
        self.answered = False
        self._limit = max_connections
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._closed = False
        host = settings.endpoint.split("://", 1)[1]
        self._common = (
            f"host: {host}\r\nauthorization: Bearer {settings.api_key}\r\nuser-agent: libdsec-python/{__version__}\r\n"
        )

    async def pool(self) -> Pool:
        """That of the running loop."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is not None and pool.pid == os.getpid() and not pool.closed:
            return pool
        if self._closed:
            raise DsecError("CANCELLED", "the client is closed")
        if pool is not None and pool.pid != os.getpid():
            _of_parents.append(pool)
        for other in list(self._pools):
            if other.is_closed():
                self._pools.pop(other, None)
        # No lock: each loop writes its own entry only, and a lock that is held at a fork stays held in the child.
        pool = self._pools[loop] = Pool(loop, self.settings, self._limit)
        await pool.guard()
        return pool

    async def unary(
        self, method: Method[I, O], message: I, *, sandbox_id: str = "", timeout: float = 0, long: bool = False
    ) -> O:
        """One call: protobuf over POST. `timeout` in seconds, 0: none."""
        try:
            body = message.encode()
        except WireError as error:
            raise DsecError("INVALID_ARGUMENT", str(error)) from error
        head = self.head("POST", method.path, _UNARY, sandbox_id, len(body))
        response = await self.exchange(head, body, method.path, timeout=timeout, long=long)
        kind = response.headers.get("content-type", "")
        if not kind.startswith("application/proto"):
            raise self.error(response)
        try:
            return decode(method.output, b"".join(response.parts))
        except WireError as error:
            where = f"{self.settings.endpoint}{method.path}"
            raise DsecError("INTERNAL", f"the answer of {where} cannot be read: {error}") from error

    async def exchange(
        self, head: bytes, body: bytes, path: str, *, timeout: float = 0, long: bool = False
    ) -> Response:
        """Sends, and gives the answer with its whole body."""
        async with Held(self, path, long=long, timeout=timeout) as connection:
            connection.send(head, body)
            response = await connection.whole()
            if response.status != 200:
                raise self.error(response)
            return response

    def open(self, head: bytes, body: bytes, path: str, good: tuple[int, ...] = (200, 206)) -> Opened:
        """An answer that is long, as an asynchronous context manager."""
        return Opened(self, head, body, path, good)

    async def upload(self, head: bytes, source: AsyncGenerator[bytes, None], path: str) -> Response:
        """Sends a body of unknown length in chunks, and gives the whole answer."""
        async with aclosing(source) as parts, Held(self, path, long=True) as connection:
            connection.send(head)
            early = True
            async for part in parts:
                # An answer before the body's end is an error of the server's: no more is sent.
                if connection.answered:
                    break
                if part:
                    await connection.write(b"%x\r\n" % len(part))
                    await connection.write(part)
                    await connection.write(b"\r\n")
            else:
                await connection.write(b"0\r\n\r\n")
                early = False
            response = await connection.whole()
            response.keep_alive &= not early
            if response.status != 200:
                raise self.error(response)
            return response

    def head(self, method: str, path: str, more: str, sandbox_id: str = "", length: int | None = None) -> bytes:
        """Request line and headers; without `length` of a body there is none, -1: it comes in chunks."""
        named = f"x-dsec-sandbox: {sandbox_id}\r\n" if sandbox_id else ""
        body = (
            ""
            if length is None
            else "transfer-encoding: chunked\r\n"
            if length < 0
            else f"content-length: {length}\r\n"
        )
        return f"{method} {path} HTTP/1.1\r\n{self._common}{named}{more}{body}\r\n".encode("ascii")

    def error(self, response: Response) -> DsecError:
        return error_of_body(b"".join(response.parts), response.status, self.settings.endpoint, response.headers)

    def close_now(self) -> None:
        """Ends every open exchange, of every loop; later ones are refused."""
        self._closed = True
        for loop, pool in list(self._pools.items()):
            if pool.pid != os.getpid() or loop.is_closed():
                continue
            if _running() is loop:
                pool.close()
            else:
                loop.call_soon_threadsafe(pool.close)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_UNARY = "content-type: application/proto\r\nconnect-protocol-version: 1\r\n"

STREAM = "content-type: application/connect+proto\r\nconnect-protocol-version: 1\r\n"


def envelope(payload: bytes) -> bytes:
    """A message of a stream: flags, length, bytes."""
    return b"\0" + len(payload).to_bytes(4, "big") + payload
