"""A command in a sandbox: run to its end, or held by a handle while it goes on in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, Union

from ._http.calls import Calls
from ._wire import messages as m
from .command_options import InputSource, Prepared, to_bytes, whole_number
from .errors import DsecError, is_reason
from .head_tail import HeadTail
from .input import InputWriter
from .output_stream import CommandStream
from .results import CommandInfo, CommandResult, command_info_of, make_result, result_of

T = TypeVar("T")
#: Called with each piece of output as it comes; what it returns is awaited, which slows the command.
OutputCallback = Callable[[bytes], Union[Awaitable[None], None]]

_DEFAULT_CAP = 16 << 20
#: Seconds of one Wait call.
_WAIT_STEP = 240.0


async def run_command(
    calls: Calls,
    sandbox_id: str,
    prepared: Prepared,
    *,
    kill_on_cancel: bool = False,
    on_stdout: OutputCallback | None = None,
    on_stderr: OutputCallback | None = None,
) -> CommandResult:
    """Runs a command to its end. See `Sandbox.exec`."""
    killer = Killer(calls, sandbox_id, prepared.command_id)
    work: Callable[[], Awaitable[CommandResult]]
    if on_stdout is not None or on_stderr is not None:
        cap = prepared.spec.output_cap_bytes or _DEFAULT_CAP
        stream = CommandStream(calls, sandbox_id, prepared.command_id, prepared.spec)

        async def with_callbacks() -> CommandResult:
            return await _collect(stream, cap, on_stdout, on_stderr)

        work = with_callbacks
    else:
        if prepared.feed is not None:
            await start_prepared(calls, sandbox_id, prepared)

        async def exec_call() -> CommandResult:
            # A repeat with the same ID attaches, so this is harmless; the answer is what was recorded.
            limit = prepared.spec.timeout_ms / 1000 + calls.request_timeout if prepared.spec.timeout_ms else 0.0
            request = m.ExecRequest(sandbox_id, prepared.command_id, prepared.spec)
            reply = await calls.call(m.EXEC, request, sandbox_id=sandbox_id, timeout=limit, long=True)
            return result_of(reply.result)

        work = exec_call
    try:
        if prepared.feed is None:
            return await work()
        return await _fed(calls, sandbox_id, prepared, prepared.feed, killer, work)
    except asyncio.CancelledError:
        if kill_on_cancel:
            await killer.kill()
        raise


async def _collect(
    stream: CommandStream, cap: int, on_stdout: OutputCallback | None, on_stderr: OutputCallback | None
) -> CommandResult:
    kept = {"stdout": HeadTail(cap), "stderr": HeadTail(cap)}
    async for chunk in stream:
        kept[chunk.stream].push(chunk.data, chunk.dropped_bytes)
        callback = on_stdout if chunk.stream == "stdout" else on_stderr
        if callback is not None and chunk.data:
            told = callback(chunk.data)
            if told is not None:
                await told
    outcome = await stream.outcome()
    return make_result(stream.command_id, outcome, kept["stdout"].collected(), kept["stderr"].collected())


async def _fed(
    calls: Calls,
    sandbox_id: str,
    prepared: Prepared,
    feed: InputSource,
    killer: Killer,
    work: Callable[[], Awaitable[T]],
) -> T:
    """Sends input beside `work`. A source that fails ends the command: it would wait for the rest for ever."""
    working = asyncio.ensure_future(work())
    feeding = asyncio.ensure_future(InputWriter(calls, sandbox_id, prepared.command_id).feed(feed))
    try:
        await asyncio.wait({working, feeding}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            # The input is all sent, or its source failed.
            if feeding.exception() is not None:
                await killer.kill()
                feeding.result()
            await asyncio.wait({working})
        return working.result()
    finally:
        for task in (working, feeding):
            task.cancel()
        await asyncio.gather(working, feeding, return_exceptions=True)


async def start_prepared(calls: Calls, sandbox_id: str, prepared: Prepared) -> CommandInfo | None:
    """Starts in the background; a repeat of the same ID finds the one that runs."""
    request = m.StartRequest(sandbox_id, prepared.command_id, prepared.spec)
    reply = await calls.call(m.START, request, sandbox_id=sandbox_id)
    return None if reply.command is None else command_info_of(reply.command)


class Killer:
    """Ends a command's whole tree; what cannot be told any more is no error, since the caller has given up already."""

    def __init__(self, calls: Calls, sandbox_id: str, command_id: str) -> None:
        self._calls = calls
        self._request = m.SignalRequest(sandbox_id, command_id, "SIGKILL", True)

    async def kill(self) -> None:
        """Goes on when the caller is cancelled once more."""
        await asyncio.shield(await self._calls.later(self._signal))

    async def _signal(self) -> None:
        await self._calls.call(m.SIGNAL, self._request, sandbox_id=self._request.sandbox_id, timeout=5.0, once=True)


class Command:
    """A command that goes on by itself; any number of handles may hold one."""

    def __init__(self, calls: Calls, sandbox_id: str, id: str) -> None:
        self.id = id
        self.sandbox_id = sandbox_id
        self._calls = calls
        self._input = InputWriter(calls, sandbox_id, id)
        self._writing = asyncio.Lock()
        #: Sends standard input that was given at the start.
        self._feeding: asyncio.Task[None] | None = None

    async def info(self) -> CommandInfo:
        """State, times and outcome. Raises DsecError COMMAND_NOT_FOUND."""
        reply = await self._calls.call(
            m.GET_COMMAND, m.GetCommandRequest(self.sandbox_id, self.id), sandbox_id=self.sandbox_id
        )
        if reply.command is None:
            raise DsecError("COMMAND_NOT_FOUND", f"the answer holds no command {self.id}")
        return command_info_of(reply.command)

    async def wait(self) -> CommandResult:
        """Waits for the end. The result's output is what was recorded."""
        request = m.WaitRequest(self.sandbox_id, self.id, int(_WAIT_STEP * 1000))
        while True:
            reply = await self._calls.call(
                m.WAIT,
                request,
                sandbox_id=self.sandbox_id,
                long=True,
                timeout=_WAIT_STEP + self._calls.request_timeout,
            )
            if reply.result is not None:
                return result_of(reply.result)

    async def poll(self) -> CommandResult | None:
        """The result if it has ended, else None; does not wait."""
        reply = await self._calls.call(m.WAIT, m.WaitRequest(self.sandbox_id, self.id), sandbox_id=self.sandbox_id)
        return None if reply.result is None else result_of(reply.result)

    def attach(self, *, stdout_offset: int = 0, stderr_offset: int = 0) -> CommandStream:
        """Output from the offsets (bytes) on, until the command ends. Several readers do not disturb each other."""
        return CommandStream(
            self._calls,
            self.sandbox_id,
            self.id,
            stdout_offset=whole_number(stdout_offset, "stdout_offset"),
            stderr_offset=whole_number(stderr_offset, "stderr_offset"),
        )

    async def output(self, *, cap_bytes: int = 16 << 20) -> CommandResult:
        """All output from the beginning, collected at the command's end, up to `cap_bytes` a stream (head and tail)."""
        return await _collect(self.attach(), whole_number(cap_bytes, "cap_bytes"), None, None)

    async def kill(self, signal: str | int = "SIGKILL", *, whole_tree: bool = True) -> None:
        """Sends a signal to the whole tree, or to the command's own process alone."""
        request = m.SignalRequest(self.sandbox_id, self.id, str(getattr(signal, "value", signal)), whole_tree)
        harmless = request.signal in ("SIGKILL", "KILL", "9")
        await self._calls.call(m.SIGNAL, request, sandbox_id=self.sandbox_id, harmless=harmless)

    async def write_input(self, data: str | bytes, *, end: bool = False) -> None:
        """Writes to stdin, after what was written before; returns when the command's side took it."""
        async with self._writing:
            await self._input.write(to_bytes(data, "data"), end)

    async def close_input(self) -> None:
        """End of file on stdin."""
        try:
            await self.write_input(b"", end=True)
        except DsecError as error:
            if not is_reason(error, "STDIN_CLOSED"):
                raise

    async def pipe_input(self, source: InputSource) -> None:
        """Sends a whole source and then end of file."""
        async with self._writing:
            await self._input.feed(source)

    async def resize(self, rows: int, cols: int) -> None:
        """Size of its terminal, in characters."""
        size = m.PtySize(whole_number(rows, "rows"), whole_number(cols, "cols"))
        await self._calls.call(
            m.RESIZE_PTY, m.ResizePtyRequest(self.sandbox_id, self.id, size), sandbox_id=self.sandbox_id
        )

    def feed_in_background(self, source: InputSource) -> None:
        """What goes wrong with the input shows in the command's own end."""

        async def feed() -> None:
            try:
                await self.pipe_input(source)
            except Exception:
                await Killer(self._calls, self.sandbox_id, self.id).kill()

        self._feeding = asyncio.get_running_loop().create_task(feed())
