"""Output of a command as it comes. A connection that breaks is taken up again at the offsets reached, so that an edge
that was killed and started again is not seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import NamedTuple

from ._http.calls import Calls
from ._http.retry import pause
from ._http.stream_parser import Ended, Output, Started, StreamParser
from ._http.transport import STREAM, envelope
from ._wire import messages as m
from ._wire.codec import WireError
from .errors import ConnectionError, DsecError, is_interruption, is_reason, with_doubt
from .results import CommandInfo, CommandOutcome, PerStream, command_info_of, outcome_of


class OutputChunk(NamedTuple):
    """A piece of a command's output."""

    #: "stdout" or "stderr".
    stream: str
    data: bytes
    #: Offset of the first byte in its stream.
    offset: int
    #: Bytes just before it that are no longer kept; as a rule 0.
    dropped_bytes: int


class CommandStream:
    """Iterate it once for the output; `outcome()` is how the command ended."""

    def __init__(
        self,
        calls: Calls,
        sandbox_id: str,
        command_id: str,
        spec: m.CommandSpec | None = None,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        kill: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.command_id = command_id
        self._calls = calls
        self._sandbox_id = sandbox_id
        self._spec = spec
        self._offsets = {"stdout": stdout_offset, "stderr": stderr_offset}
        self._kill = kill
        self._info: CommandInfo | None = None
        self._outcome: CommandOutcome | None = None
        self._iterated = False

    @property
    def offsets(self) -> PerStream:
        """Offsets behind the last bytes given."""
        return PerStream(self._offsets["stdout"], self._offsets["stderr"])

    @property
    def info(self) -> CommandInfo | None:
        """Known once the first event has come."""
        return self._info

    async def outcome(self) -> CommandOutcome:
        """How the command ended; reads what is left of the stream if nobody did."""
        if not self._iterated:
            async for _ in self:
                pass
        if self._outcome is None:
            raise DsecError("CANCELLED", f"the stream of command {self.command_id} was left before its end")
        return self._outcome

    def __aiter__(self) -> AsyncGenerator[OutputChunk, None]:
        if self._iterated:
            raise DsecError("INVALID_ARGUMENT", "a command's stream can be read once; attach again for another reader")
        self._iterated = True
        return self._chunks()

    async def _chunks(self) -> AsyncGenerator[OutputChunk, None]:
        end = 0.0
        attempts = 0
        while self._outcome is None:
            events = 0
            try:
                async with aclosing(self._attempt()) as chunks:
                    async for chunk in chunks:
                        if chunk is not None:
                            yield chunk
                        events += 1
                if self._outcome is None:
                    raise ConnectionError("the stream ended before the command did", True)
            except DsecError as error:
                if self._outcome is not None:
                    return
                if not is_interruption(error) and not is_reason(error, "SLOW_READER"):
                    raise
                now = time.monotonic()
                if events > 0 or end == 0:
                    attempts = 0
                    end = now + self._calls.retry_within
                wait = pause(attempts, error.retry_after)
                attempts += 1
                if now + wait > end:
                    raise (with_doubt(error) if self._info is not None and not error.outcome else error) from None
                await asyncio.sleep(wait)
            except asyncio.CancelledError:
                if self._kill is not None:
                    await self._kill()
                raise

    async def _attempt(self) -> AsyncGenerator[OutputChunk | None, None]:
        """Chunks of one connection; None for what is no output, as a sign of life."""
        request = m.StreamRequest(
            self._sandbox_id,
            self.command_id,
            # Once it was seen to run, only attaching is right: an unknown ID then means that its record is gone.
            self._spec if self._info is None else None,
            self._offsets["stdout"],
            self._offsets["stderr"],
        )
        try:
            body = envelope(request.encode())
        except WireError as error:
            raise DsecError("INVALID_ARGUMENT", str(error)) from error
        http = self._calls.http
        head = http.head("POST", m.STREAM.path, STREAM, self._sandbox_id, len(body))
        parser = StreamParser()
        async with http.open(head, body, m.STREAM.path) as (_, response):
            while part := await response.part():
                for event in parser.push(part):
                    if isinstance(event, Output):
                        self._offsets[event.stream] = event.offset + len(event.data)
                        yield OutputChunk(event.stream, event.data, event.offset, event.dropped_bytes)
                        continue
                    if isinstance(event, Started):
                        self._info = command_info_of(event.info)
                    elif isinstance(event, Ended):
                        self._outcome = outcome_of(event.outcome)
                    yield None
                if parser.error is not None:
                    raise parser.error
        if not parser.finished:
            raise ConnectionError("the stream was cut", True)
