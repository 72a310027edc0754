"""One HTTP/1.1 connection: one exchange at a time, bodies as they come, with back-pressure both ways.

It reads straight into slabs: a StreamReader would copy every byte twice more and wake its reader for each piece.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import cast

from ..errors import ConnectionError, DsecError

_SLAB = 256 << 10
_SMALL_SLAB = 16 << 10
_HIGH_WATER = 1 << 20
_MAX_HEAD = 64 << 10


class Response:
    """The head of an answer, and its body as it comes."""

    __slots__ = ("_connection", "complete", "headers", "keep_alive", "parts", "status", "trailers")

    def __init__(self, connection: Connection, status: int, headers: dict[str, str], keep_alive: bool) -> None:
        self._connection = connection
        self.status = status
        #: Lower-case names.
        self.headers = headers
        self.keep_alive = keep_alive
        self.parts: deque[bytes] = deque()
        self.complete = False
        self.trailers: dict[str, str] = {}

    async def part(self) -> bytes:
        """The next piece, b"" at the end of the body. @raises ConnectionError: for a body that is cut."""
        return await self._connection.next_part(self)

    async def read(self, limit: int | None = None) -> bytes:
        """The whole body (or a beginning of at least `limit` bytes)."""
        found: list[bytes] = []
        size = 0
        while part := await self.part():
            found.append(part)
            size += len(part)
            if limit is not None and size >= limit:
                break
        return found[0] if len(found) == 1 else b"".join(found)


class Connection(asyncio.BufferedProtocol):
    """Made by `open_connection`. Not reusable once an exchange on it was given up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, where: str) -> None:
        self._loop = loop
        self._where = where
        self._transport: asyncio.Transport | None = None
        self._slab = memoryview(bytearray(_SMALL_SLAB))
        self._head = bytearray()
        self._response: Response | None = None
        #: How the body is framed: "head" while there is none yet, "sized", "chunked", or "end" (of the connection).
        self._framing = "head"
        self._left = 0
        self._chunk_line = bytearray()
        self._chunk_state = "size"
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._queued = 0
        self._reading_paused = False
        self._collecting = False
        self._error: DsecError | None = None
        self._began = False
        self.closed = False
        #: Loop time of the end of the last exchange.
        self.idle_since = 0.0
        #: Told once when the connection is gone.
        self.on_closed: Callable[[Connection], None] | None = None

    # --- what a caller does

    def send(self, head: bytes, body: bytes = b"") -> None:
        """Begins an exchange."""
        self._response = None
        self._head.clear()
        self._framing = "head"
        self._collecting = False
        self._began = True
        if self.closed or self._transport is None:
            self._fail(ConnectionError(f"the connection to {self._where} was closed", False))
            return
        if len(body) <= 65536:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)

    async def write(self, data: bytes) -> None:
        """More of a request's body; waits while the server takes nothing."""
        if self.closed or self._transport is None:
            raise self._error or ConnectionError(f"the connection to {self._where} was closed", True)
        self._transport.write(data)
        if self._writer is not None:
            await self._writer

    @property
    def last(self) -> Response | None:
        """The answer of the exchange that was begun last."""
        return self._response

    @property
    def answered(self) -> bool:
        """An answer, or an error in its place, has begun."""
        return self._response is not None or self._error is not None

    async def response(self) -> Response:
        """The answer's head. @raises ConnectionError"""
        while self._response is None:
            await self._wait()
        return self._response

    async def next_part(self, response: Response) -> bytes:
        while not response.parts:
            if response.complete:
                return b""
            await self._wait()
        part = response.parts.popleft()
        self._queued -= len(part)
        if self._reading_paused and self._queued < _HIGH_WATER // 2:
            self._resume_reading()
        return part

    async def whole(self) -> Response:
        """The answer with its whole body."""
        self._collecting = True
        self._resume_reading()
        while self._response is None or not self._response.complete:
            await self._wait()
        return self._response

    def _resume_reading(self) -> None:
        if self._reading_paused and self._transport is not None and not self.closed:
            self._reading_paused = False
            self._transport.resume_reading()

    def abort(self, error: DsecError | None = None) -> None:
        """Ends it at once; who waits gets the error."""
        if error is not None:
            self._fail(error)
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._reader = self._loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    # --- what the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is no subclass.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=1 << 20, low=256 << 10)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._response is not None and not self._response.complete and self._framing == "end" and exc is None:
            self._complete()
        elif self._response is None or not self._response.complete:
            what = "in the middle of the answer" if self._response is not None else "without an answer"
            why = f": {_words(exc)}" if exc is not None else ""
            self._fail(ConnectionError(f"{self._where} closed the connection {what}{why}", self._began))
        if self._writer is not None and not self._writer.done():
            self._writer.set_exception(self._error or ConnectionError(f"{self._where} closed the connection", True))
            # It may be that nobody waits any more.
            self._writer.exception()
        self._wake()
        if self.on_closed is not None:
            self.on_closed(self)
            self.on_closed = None

    def pause_writing(self) -> None:
        self._writer = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)
        self._writer = None

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._slab

    def buffer_updated(self, nbytes: int) -> None:
        data = self._slab[:nbytes]
        try:
            while len(data) > 0:
                if self._response is not None and self._response.complete:
                    raise ConnectionError(f"{self._where} sent more than the answer", True)
                data = self._read_head(data) if self._framing == "head" else self._read_body(data)
        except DsecError as error:
            self.abort(error)
            return
        if nbytes == _SMALL_SLAB and len(self._slab) == _SMALL_SLAB:
            self._slab = memoryview(bytearray(_SLAB))
        full = self._queued >= _HIGH_WATER and not self._collecting
        if full and not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()
        self._wake()

    # --- the answer

    def _read_head(self, data: memoryview) -> memoryview:
        before = len(self._head)
        self._head += data
        end = self._head.find(b"\r\n\r\n", max(0, before - 3))
        if end < 0:
            if len(self._head) > _MAX_HEAD:
                raise ConnectionError(f"what {self._where} sent is no HTTP answer: its head has no end", True)
            if not b"HTTP/1.".startswith(self._head[:7]):
                raise ConnectionError(f"what {self._where} sent is no HTTP answer", True)
            return data[len(data) :]
        lines = self._head[:end].decode("latin-1").split("\r\n")
        rest = data[end + 4 - before :]
        self._head.clear()
        version, _, status = lines[0].partition(" ")
        if not version.startswith("HTTP/1.") or not status[:3].isdigit():
            raise ConnectionError(f"what {self._where} sent is no HTTP answer", True)
        code = int(status[:3])
        if 100 <= code < 200 and code != 101:
            return rest
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        word = headers.get("connection", "").lower()
        keep_alive = "close" not in word and (version == "HTTP/1.1" or "keep-alive" in word)
        self._response = Response(self, code, headers, keep_alive)
        self._choose_body(code, headers)
        return rest

    def _choose_body(self, code: int, headers: dict[str, str]) -> None:
        assert self._response is not None
        length = headers.get("content-length")
        if code == 101:
            self._response.keep_alive = False
            self._framing = "end"
        elif code in (204, 304):
            self._framing = "sized"
            self._complete()
        elif "chunked" in headers.get("transfer-encoding", "").lower():
            self._chunk_state = "size"
            self._chunk_line.clear()
            self._framing = "chunked"
        elif length is not None:
            if not length.isdigit():
                raise ConnectionError(f"{self._where} sent a content-length that is no number", True)
            self._left = int(length)
            self._framing = "sized"
            if self._left == 0:
                self._complete()
        else:
            self._response.keep_alive = False
            self._framing = "end"

    def _read_body(self, data: memoryview) -> memoryview:
        if self._framing == "chunked":
            return self._read_chunks(data)
        if self._framing == "sized":
            part = data[: self._left]
            self._left -= len(part)
            self._give(part)
            if self._left == 0:
                self._complete()
            return data[len(part) :]
        self._give(data)
        return data[len(data) :]

    def _read_chunks(self, data: memoryview) -> memoryview:
        while len(data) > 0:
            if self._chunk_state == "data":
                part = data[: self._left]
                self._left -= len(part)
                self._give(part)
                data = data[len(part) :]
                if self._left == 0:
                    self._chunk_state = "crlf"
                continue
            line = bytes(data[:_MAX_HEAD])
            feed = line.find(b"\n")
            self._chunk_line += line if feed < 0 else line[:feed]
            if len(self._chunk_line) > _MAX_HEAD:
                raise ConnectionError("a line of the body's framing has no end", True)
            data = data[len(line) if feed < 0 else feed + 1 :]
            if feed >= 0 and self._end_line():
                return data
        return data

    def _end_line(self) -> bool:
        """True at the end of the body."""
        line = self._chunk_line.rstrip(b"\r").decode("latin-1")
        self._chunk_line.clear()
        if self._chunk_state == "crlf":
            if line:
                raise ConnectionError("a chunk of the body is longer than it said", True)
            self._chunk_state = "size"
        elif self._chunk_state == "trailer":
            if not line:
                self._complete()
                return True
            name, _, value = line.partition(":")
            assert self._response is not None
            self._response.trailers[name.lower()] = value.strip()
        else:
            try:
                self._left = int(line.split(";")[0].strip(), 16)
            except ValueError:
                raise ConnectionError("the body's framing is damaged", True) from None
            self._chunk_state = "trailer" if self._left == 0 else "data"
        return False

    def _give(self, part: memoryview) -> None:
        if len(part) > 0 and self._response is not None:
            self._response.parts.append(bytes(part))
            self._queued += len(part)

    def _complete(self) -> None:
        if self._response is not None:
            self._response.complete = True
            self._queued = 0
        self._began = False
        self.idle_since = self._loop.time()

    def _fail(self, error: DsecError) -> None:
        if self._error is None:
            self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


def _words(error: BaseException) -> str:
    number = getattr(error, "errno", None)
    if isinstance(error, OSError) and not isinstance(error, (socket.gaierror, ssl.SSLError)) and number:
        return os.strerror(number)
    return str(error) or type(error).__name__


async def open_connection(
    loop: asyncio.AbstractEventLoop, host: str, port: int, tls: ssl.SSLContext | None, timeout: float
) -> Connection:
    """@raises ConnectionError: with `sent` false"""
    where = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
    opening = loop.create_connection(lambda: Connection(loop, where), host, port, ssl=tls)
    try:
        _, connection = await asyncio.wait_for(opening, timeout)
    except (asyncio.TimeoutError, TimeoutError):
        raise ConnectionError(f"{where} took no connection within {timeout:g} s", False) from None
    except (OSError, ValueError) as error:
        raise ConnectionError(f"cannot connect to {where}: {_words(error)}", False) from error
    return connection
