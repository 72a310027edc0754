"""An interactive terminal: a command on a PTY, its bytes over a WebSocket. A socket that breaks is opened again at the
offset reached; keys that were typed meanwhile are kept and sent."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType

from ._http.calls import Calls
from ._http.retry import pause
from ._http.websocket import BINARY, TEXT, WebSocket, open_websocket
from ._wire import messages as m
from ._wire.codec import WireError, from_json
from ._wire.wire_error import error_of_info
from .command import start_prepared
from .command_options import CommandLine, PtySize, prepare, to_bytes, whole_number
from .errors import DsecError, is_interruption, is_reason
from .results import CommandOutcome, outcome_of

#: Runs in the platform's own bash: the image may have no shell at all.
_DEFAULT_SHELL = """s=; if [ -r /etc/passwd ]; then while IFS=: read -r n _ u _ _ _ p; do [ "$u" = "$UID" ] && s=$p && break; done < /etc/passwd; fi
case $s in */nologin|*/false|"") s=;; esac
export TERM="${TERM:-xterm-256color}"
if [ -n "$s" ] && [ -x "$s" ]; then exec "$s" -l; fi
exec "$BASH" -l -i"""  # noqa: E501

#: Bytes of output that wait for their reader before no more is taken from the connection.
_HIGH_WATER = 1 << 20


class Terminal:
    """Made by `Sandbox.terminal`. Iterate it once for the output; leaving its `async with` hangs up."""

    def __init__(self, calls: Calls, sandbox_id: str, command_id: str, size: PtySize) -> None:
        self.command_id = command_id
        self._calls = calls
        self._sandbox_id = sandbox_id
        self._size = size
        self._offset = 0
        self._socket: WebSocket | None = None
        self._typed: list[bytes] = []
        self._output: deque[bytes] = deque()
        self._waiting = 0
        self._changed = asyncio.Event()
        self._reading = False
        self._opened = asyncio.Event()
        self._outcome: CommandOutcome | None = None
        self._error: DsecError | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def run(self) -> Terminal:
        """Returns when the first socket is open."""
        self._keeper = asyncio.get_running_loop().create_task(self._keep())
        opening = asyncio.ensure_future(self._opened.wait())
        try:
            await asyncio.wait({self._keeper, opening}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            opening.cancel()
        if not self._opened.is_set() and self._error is not None:
            raise self._error
        return self

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """Output from the first byte on, until the command ends or the terminal is left."""
        self._reading = True
        try:
            while True:
                if self._output:
                    part = self._output.popleft()
                    self._waiting -= len(part)
                    self._tell()
                    yield part
                elif self._over():
                    if self._error is not None and not is_reason(self._error, "CANCELLED"):
                        raise self._error
                    return
                else:
                    await self._change()
        finally:
            self._reading = False

    async def write(self, data: str | bytes) -> None:
        """Input: keys, as bytes or UTF-8. Kept and sent later while the connection is away."""
        keys = to_bytes(data, "data")
        if self._socket is None:
            self._typed.append(keys)
            return
        try:
            await self._socket.send(BINARY, keys)
        except DsecError:
            self._typed.append(keys)

    async def resize(self, rows: int, cols: int) -> None:
        """New size, in characters."""
        self._size = PtySize(whole_number(rows, "rows"), whole_number(cols, "cols"))
        if self._socket is not None:
            await self._socket.send(TEXT, self._resize_message())

    async def ended(self) -> CommandOutcome:
        """How the command ended; output that nobody reads is dropped. Raises DsecError when the platform lost it."""
        while not self._over():
            if not self._reading:
                self._output.clear()
                self._waiting = 0
                self._tell()
            await self._change()
        if self._outcome is None:
            raise self._error or DsecError("CANCELLED", "the terminal was closed")
        return self._outcome

    async def close(self) -> None:
        """Leaves the terminal; the command gets a hang-up."""
        if self._keeper is not None and not self._keeper.done():
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        if self._over():
            return
        self._finish(error=DsecError("CANCELLED", "the terminal was closed"))
        request = m.SignalRequest(self._sandbox_id, self.command_id, "SIGHUP", True)

        async def hang_up() -> None:
            await self._calls.call(m.SIGNAL, request, sandbox_id=self._sandbox_id, timeout=5.0, once=True)

        await asyncio.shield(await self._calls.later(hang_up))

    async def __aenter__(self) -> Terminal:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _keep(self) -> None:
        """Keeps a socket open until the end."""
        end = 0.0
        attempts = 0
        while not self._over():
            try:
                await self._attach()
                attempts, end = 0, 0.0
            except DsecError as error:
                if not is_interruption(error) and not is_reason(error, "SLOW_READER"):
                    self._finish(error=error)
                    return
                now = time.monotonic()
                end = end or now + self._calls.retry_within
                wait = pause(attempts, error.retry_after)
                attempts += 1
                if now + wait > end:
                    self._finish(error=error)
                    return
                await asyncio.sleep(wait)

    async def _attach(self) -> None:
        path = f"/v1/sandboxes/{self._sandbox_id}/terminal?command_id={self.command_id}&stdout_offset={self._offset}"
        async with open_websocket(self._calls.http, path, self._sandbox_id) as socket:
            try:
                await socket.send(TEXT, self._resize_message())
                for keys in self._typed:
                    await socket.send(BINARY, keys)
                self._typed.clear()
                self._socket = socket
                self._opened.set()
                async for kind, payload in socket.messages():
                    if kind == BINARY:
                        await self._take(payload)
                    else:
                        self._control(payload)
                    if self._over():
                        return
            finally:
                self._socket = None

    async def _take(self, data: bytes) -> None:
        self._offset += len(data)
        self._output.append(data)
        self._waiting += len(data)
        self._tell()
        while self._waiting > _HIGH_WATER:
            await self._change()

    def _control(self, payload: bytes) -> None:
        try:
            message = json.loads(payload)
            if "gap" in message:
                self._offset = int(message["gap"]["offset"]) + int(message["gap"]["droppedBytes"])
            elif "ended" in message:
                self._finish(outcome=outcome_of(from_json(m.CommandOutcome, message["ended"])))
            elif "error" in message:
                raise error_of_info(from_json(m.ErrorInfo, message["error"]))
        except (WireError, ValueError, TypeError, KeyError) as error:
            raise DsecError("INTERNAL", f"the terminal's connection sent what cannot be read: {error}") from error

    def _resize_message(self) -> bytes:
        return json.dumps({"resize": {"rows": self._size.rows, "cols": self._size.cols}}).encode()

    def _over(self) -> bool:
        return self._outcome is not None or self._error is not None

    def _finish(self, outcome: CommandOutcome | None = None, error: DsecError | None = None) -> None:
        if not self._over():
            self._outcome, self._error = outcome, error
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _change(self) -> None:
        await self._changed.wait()


async def open_terminal(
    calls: Calls,
    sandbox_id: str,
    command: CommandLine | None,
    size: PtySize,
    *,
    cwd: str | None,
    env: Mapping[str, str] | None,
    secret_env: Mapping[str, str] | None,
    user: str | int | None,
    timeout: float | None,
    command_id: str | None,
) -> Terminal:
    prepared = prepare(
        _DEFAULT_SHELL if command is None else command,
        cwd=cwd,
        env=env,
        secret_env=secret_env,
        user=user,
        stdin_open=True,
        timeout=timeout,
        pty=size,
        command_id=command_id,
    )
    await start_prepared(calls, sandbox_id, prepared)
    return await Terminal(calls, sandbox_id, prepared.command_id, size).run()
