"""Plain HTTP bodies: sent from any source with back-pressure, read as they come."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator

from ..command_options import InputSource, to_bytes, wrong_type
from ..input import pieces
from .calls import Calls
from .connection import Response
from .held import Opened
from .retry import retrying

_OCTETS = "content-type: application/octet-stream\r\n"


async def send_body(calls: Calls, method: str, path: str, source: InputSource, sandbox_id: str = "") -> bytes:
    """Sends a body and gives the whole answer. Bytes are sent again after an interruption, a stream is not."""
    http = calls.http
    where = path.split("?")[0]
    if isinstance(source, (str, bytes, bytearray, memoryview)):
        body = to_bytes(source, "content")
        head = http.head(method, path, _OCTETS, sandbox_id, len(body))

        async def attempt() -> Response:
            return await http.exchange(head, body, where, long=True)

        response = await retrying(attempt, within=calls.retry_within, harmless=True)
    elif not hasattr(source, "__aiter__") and not hasattr(source, "__iter__"):
        raise wrong_type("content", source, "str, bytes, a file or an iterable of them")
    else:
        head = http.head(method, path, _OCTETS, sandbox_id, -1)
        response = await http.upload(head, pieces(source, "content"), where)
    return b"".join(response.parts)


async def read_body(calls: Calls, path: str, sandbox_id: str) -> AsyncGenerator[bytes, None]:
    """Pieces of a body as they come; an opening that is interrupted is repeated. Raises ConnectionError for a body that
    is cut."""
    head = calls.http.head("GET", path, "", sandbox_id)

    async def attempt() -> tuple[Opened, Response]:
        opened = calls.http.open(head, b"", path.split("?")[0])
        return opened, (await opened.__aenter__())[1]

    opened, response = await retrying(attempt, within=calls.retry_within, harmless=True)
    try:
        while part := await response.part():
            yield part
    finally:
        await opened.__aexit__(*sys.exc_info())


async def collect_body(calls: Calls, path: str, sandbox_id: str) -> bytes:
    """Whole body; an interruption begins it anew."""
    head = calls.http.head("GET", path, "", sandbox_id)

    async def attempt() -> Response:
        return await calls.http.exchange(head, b"", path.split("?")[0], long=True)

    return b"".join((await retrying(attempt, within=calls.retry_within, harmless=True)).parts)
