"""A WebSocket's client side (RFC 6455), as much of it as a terminal needs: no extensions, messages up to 16 MiB."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from ..errors import ConnectionError
from .connection import Connection, Response
from .transport import Transport

TEXT = 1
BINARY = 2
_CLOSE = 8
_PING = 9
_PONG = 10
_MAX_MESSAGE = 16 << 20


class WebSocket:
    def __init__(self, connection: Connection, response: Response) -> None:
        self._connection = connection
        self._response = response
        self._held = bytearray()
        self._closing = False

    async def send(self, kind: int, payload: bytes) -> None:
        mask = os.urandom(4)
        size = len(payload)
        if size < 126:
            head = bytes((0x80 | kind, 0x80 | size))
        elif size < 65536:
            head = bytes((0x80 | kind, 0xFE)) + size.to_bytes(2, "big")
        else:
            head = bytes((0x80 | kind, 0xFF)) + size.to_bytes(8, "big")
        pad = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        masked = (int.from_bytes(payload, "big") ^ pad).to_bytes(size, "big")
        await self._connection.write(head + mask + masked)

    async def messages(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """Whole messages until the server closes. Raises ConnectionError for a connection that breaks."""
        kind = 0
        parts = bytearray()
        while True:
            final, opcode, payload = await self._frame()
            if opcode == _PING:
                await self.send(_PONG, payload)
            elif opcode == _CLOSE:
                await self.close(payload[:2])
                return
            elif opcode in (0, TEXT, BINARY):
                kind = opcode or kind
                parts += payload
                if len(parts) > _MAX_MESSAGE:
                    raise ConnectionError("a message of the terminal's connection is too long", True)
                if final:
                    yield kind, bytes(parts)
                    parts.clear()

    async def close(self, status: bytes = b"\x03\xe8") -> None:
        if not self._closing:
            self._closing = True
            await self.send(_CLOSE, status)

    async def _frame(self) -> tuple[bool, int, bytes]:
        await self._need(2)
        size = self._held[1] & 127
        at = 2
        if size >= 126:
            at = 4 if size == 126 else 10
            await self._need(at)
            size = int.from_bytes(self._held[2:at], "big")
        if size > _MAX_MESSAGE or self._held[1] & 0x80 or self._held[0] & 0x70:
            raise ConnectionError("the terminal's connection sent what is no frame", True)
        await self._need(at + size)
        first = self._held[0]
        payload = bytes(self._held[at : at + size])
        del self._held[: at + size]
        return bool(first & 0x80), first & 15, payload

    async def _need(self, size: int) -> None:
        while len(self._held) < size:
            part = await self._response.part()
            if not part:
                raise ConnectionError("the terminal's connection was cut", True)
            self._held += part


@asynccontextmanager
async def open_websocket(http: Transport, path: str, sandbox_id: str) -> AsyncIterator[WebSocket]:
    """Used by a task alone, so it is never left open at the end of a loop."""
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = f"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n"
    head = http.head("GET", path, upgrade, sandbox_id)
    async with http.open(head, b"", path.split("?")[0], good=(101,)) as (connection, response):
        wanted = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode(), usedforsecurity=False)
        if response.headers.get("sec-websocket-accept") != base64.b64encode(wanted.digest()).decode():
            raise ConnectionError(f"{http.settings.endpoint} did not make a WebSocket of the connection", True)
        yield WebSocket(connection, response)
