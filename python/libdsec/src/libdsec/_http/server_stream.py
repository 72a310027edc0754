"""Server streams of small messages, one envelope each."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import TypeVar

from .._wire.codec import Message, Method, decode
from .._wire.wire_error import error_of_json
from ..errors import ConnectionError, DsecError
from .calls import Calls
from .transport import STREAM, envelope

I = TypeVar("I", bound=Message)  # noqa: E741
O = TypeVar("O", bound=Message)  # noqa: E741
_MAX_MESSAGE = 8 << 20


async def server_stream(calls: Calls, method: Method[I, O], message: I, sandbox_id: str) -> AsyncGenerator[O, None]:
    body = envelope(message.encode())
    head = calls.http.head("POST", method.path, STREAM, sandbox_id, len(body))
    held = b""
    async with calls.http.open(head, body, method.path) as (_, response):
        while part := await response.part():
            held += part
            while len(held) >= 5:
                length = int.from_bytes(held[1:5], "big")
                if length > _MAX_MESSAGE:
                    raise DsecError("INTERNAL", f"a message of {length} bytes in a stream of small ones")
                if len(held) < 5 + length:
                    break
                last, payload, held = held[0] & 2, held[5 : 5 + length], held[5 + length :]
                try:
                    if not last:
                        yield decode(method.output, payload)
                        continue
                    ending = json.loads(payload or b"{}")
                except ValueError as error:
                    raise DsecError("INTERNAL", f"a message of the stream cannot be read: {error}") from error
                if isinstance(ending, dict) and ending.get("error"):
                    raise error_of_json(ending["error"], 0)
                return
    raise ConnectionError("the stream was cut", True)
