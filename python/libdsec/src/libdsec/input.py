"""Standard input sent in pieces, each with its offset, so that a repeated piece does no harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from ._http.calls import Calls
from ._wire import messages as m
from .command_options import InputSource, to_bytes
from .errors import DsecError, is_reason, is_sandbox_gone

_PIECE = 1 << 20


class InputWriter:
    def __init__(self, calls: Calls, sandbox_id: str, command_id: str) -> None:
        #: Bytes that the command's side has taken.
        self.offset = 0
        self._calls = calls
        self._sandbox_id = sandbox_id
        self._command_id = command_id

    async def write(self, data: bytes, end_of_file: bool = False) -> None:
        """Returns when all is taken. @raises DsecError: STDIN_CLOSED when the command takes no more."""
        at = 0
        idle = 0
        while True:
            piece = data[at : at + _PIECE]
            last = end_of_file and at + len(piece) == len(data)
            request = m.WriteInputRequest(self._sandbox_id, self._command_id, self.offset, piece, last)
            reply = await self._calls.call(m.WRITE_INPUT, request, sandbox_id=self._sandbox_id)
            taken = max(0, reply.accepted_bytes - self.offset)
            self.offset += taken
            at += taken
            if at >= len(data):
                return
            # A full pipe takes nothing: ask again, less and less often.
            idle = 0 if taken > 0 else min(idle + 1, 6)
            if idle > 0:
                await asyncio.sleep(2**idle / 1000)

    async def feed(self, source: InputSource) -> None:
        """Sends everything and then end of file. A command that stops reading is no error."""
        try:
            async for part in pieces(source, "stdin"):
                await self.write(part)
            await self.write(b"", True)
        except DsecError as error:
            if not is_reason(error, "STDIN_CLOSED", "COMMAND_NOT_FOUND") and not is_sandbox_gone(error):
                raise


async def pieces(source: InputSource, name: str) -> AsyncGenerator[bytes, None]:
    """Any source as bytes: text is UTF-8. What blocks in reading (a file here) does so beside the loop."""
    if isinstance(source, (str, bytes, bytearray, memoryview)):
        data = to_bytes(source, name)
        for at in range(0, len(data), _PIECE):
            yield data[at : at + _PIECE]
    elif hasattr(source, "__aiter__"):
        async for part in source:
            if one := to_bytes(part, f"a piece of {name}"):
                yield one
    else:
        read = getattr(source, "read", None)
        steps = iter(source)
        while True:
            part = await asyncio.to_thread(*((read, _PIECE) if read is not None else (next, steps, None)))
            if part is None or (read is not None and not part):
                return
            if one := to_bytes(part, f"a piece of {name}"):
                yield one
