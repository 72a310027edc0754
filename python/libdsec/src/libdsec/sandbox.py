"""A sandbox: commands, sessions, files, life."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from types import TracebackType

from ._http.calls import Calls
from ._wire import messages as m
from .command import Command, Killer, OutputCallback, run_command, start_prepared
from .command_options import (
    CommandLine,
    InputSource,
    PtySize,
    milliseconds,
    prepare,
    random_id,
    strings,
    text,
    user_of,
    whole_number,
    wrong_type,
)
from .errors import DsecError, is_sandbox_gone
from .files import Files
from .output_stream import CommandStream
from .results import CommandInfo, CommandResult, command_info_of, name_of, time_of
from .run_args import NetworkRules, rules_of
from .sandbox_info import (
    NetworkUpdate,
    Notice,
    SandboxEvent,
    SandboxInfo,
    SandboxUsage,
    SessionInfo,
    notices_of,
    sandbox_info_of,
)
from .session import Session
from .terminal import Terminal, open_terminal


class Sandbox:
    """Made by `DSecClient`. As a context manager it is stopped at the end."""

    def __init__(self, calls: Calls, id: str, created: m.Sandbox | None = None) -> None:
        self.id = id
        #: Read, write, list, move and transfer files.
        self.files = Files(calls, id)
        #: What was asked at the create and could not be honoured; empty on a sandbox from `connect`.
        self.notices: list[Notice] = [] if created is None else notices_of(created.notices)
        self._calls = calls

    def __repr__(self) -> str:
        return f"<Sandbox {self.id}>"

    async def info(self) -> SandboxInfo:
        """State, limits, clocks and layers."""
        reply = await self._calls.call(m.GET_SANDBOX, m.GetSandboxRequest(self.id), sandbox_id=self.id)
        return sandbox_info_of(_present(reply.sandbox, self.id))

    async def exec(
        self,
        argv: Sequence[str | bytes],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        stdin: InputSource | None = None,
        timeout: float | None = None,
        pty: PtySize | tuple[int, int] | bool = False,
        output_cap_bytes: int | None = None,
        command_id: str | None = None,
        kill_on_cancel: bool = False,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
    ) -> CommandResult:
        """Runs a program to its end. A command that ran gives a result whatever it returned; only faults of the
        platform raise. A connection that breaks meanwhile is taken up again, and the command never runs twice.

        Args:
            argv: The program and its arguments; str is sent as UTF-8.
            cwd: Absolute, or relative to the sandbox's working directory.
            env: Added to the sandbox's environment.
            secret_env: The same, but in no history, log or event.
            user: Name or number, optionally ":group". Default: the sandbox's init user.
            stdin: Whole input, then end of file; text, bytes, a file or an (async) iterable. Default: /dev/null.
            timeout: Seconds; at the end the whole tree is killed and the result says `timed_out`. Default: none.
            pty: Run on a terminal (rows, columns); stderr is then part of stdout.
            output_cap_bytes: Bytes recorded a stream, half head, half tail. Default 16 MiB, at most 64 MiB.
            command_id: [A-Za-z0-9_-]{1,64}; asking again with it attaches, it never runs twice. Default: a random one.
            kill_on_cancel: Cancelling the task ends the command's whole tree too. Else it goes on.
            on_stdout: Called with each piece as it comes; what it returns is awaited, which slows the command.
            on_stderr: The same for stderr.

        Raises:
            DsecError: EMPTY_COMMAND, INVALID_USER, SANDBOX_ENDED, SANDBOX_LOST, UNAVAILABLE, …

        >>> result = await sandbox.exec(["sh", "-c", "cat; exit 3"], stdin="hello", timeout=10)
        >>> result.exit_code, result.stdout, result.timed_out
        (3, 'hello', False)
        """
        if isinstance(argv, str):
            raise wrong_type("argv", argv, "a list of str or bytes; run_shell() takes shell text")
        return await run_command(
            self._calls,
            self.id,
            prepare(
                argv,
                cwd=cwd,
                env=env,
                secret_env=secret_env,
                user=user,
                stdin=stdin,
                timeout=timeout,
                pty=pty,
                output_cap_bytes=output_cap_bytes,
                command_id=command_id,
            ),
            kill_on_cancel=kill_on_cancel,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
        )

    async def run_shell(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        stdin: InputSource | None = None,
        timeout: float | None = None,
        pty: PtySize | tuple[int, int] | bool = False,
        output_cap_bytes: int | None = None,
        command_id: str | None = None,
        kill_on_cancel: bool = False,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
    ) -> CommandResult:
        """Runs shell text in a bash of the platform's own (not the image's); arguments and errors as of `exec`."""
        return await run_command(
            self._calls,
            self.id,
            prepare(
                text(command, "the command"),
                cwd=cwd,
                env=env,
                secret_env=secret_env,
                user=user,
                stdin=stdin,
                timeout=timeout,
                pty=pty,
                output_cap_bytes=output_cap_bytes,
                command_id=command_id,
            ),
            kill_on_cancel=kill_on_cancel,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
        )

    def stream(
        self,
        line: CommandLine,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        stdin: str | bytes | None = None,
        timeout: float | None = None,
        pty: PtySize | tuple[int, int] | bool = False,
        output_cap_bytes: int | None = None,
        command_id: str | None = None,
        kill_on_cancel: bool = False,
    ) -> CommandStream:
        """Runs a program (a list) or shell text (str) and gives its output as it comes. A slow reader slows it.

        Args are those of `exec`; `stdin` is at most 1 MiB.

        >>> stream = sandbox.stream("echo out; echo err >&2")
        >>> sorted([(chunk.stream, chunk.data, chunk.offset) async for chunk in stream])
        [('stderr', b'err\\n', 0), ('stdout', b'out\\n', 0)]
        >>> (await stream.outcome()).exit_code
        0
        """
        prepared = prepare(
            line,
            cwd=cwd,
            env=env,
            secret_env=secret_env,
            user=user,
            stdin=stdin,
            timeout=timeout,
            pty=pty,
            output_cap_bytes=output_cap_bytes,
            command_id=command_id,
        )
        if prepared.feed is not None:
            raise DsecError(
                "INVALID_ARGUMENT",
                "stream() takes at most 1 MiB of stdin, as str or bytes; use start() with stdin_open for more",
            )
        killer = Killer(self._calls, self.id, prepared.command_id) if kill_on_cancel else None
        return CommandStream(
            self._calls, self.id, prepared.command_id, prepared.spec, kill=None if killer is None else killer.kill
        )

    async def start(
        self,
        line: CommandLine,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        stdin: InputSource | None = None,
        stdin_open: bool = False,
        timeout: float | None = None,
        pty: PtySize | tuple[int, int] | bool = False,
        output_cap_bytes: int | None = None,
        command_id: str | None = None,
    ) -> Command:
        """Starts a program (a list) or shell text (str) in the background. It goes on without us, also when the client
        ends. Args are those of `exec`; with `stdin_open` input comes later by `Command.write_input`.

        >>> command = await sandbox.start(["sleep", "600"])
        >>> await command.kill("SIGTERM")
        >>> (await command.wait()).signal
        'SIGTERM'
        """
        prepared = prepare(
            line,
            cwd=cwd,
            env=env,
            secret_env=secret_env,
            user=user,
            stdin=stdin,
            stdin_open=stdin_open,
            timeout=timeout,
            pty=pty,
            output_cap_bytes=output_cap_bytes,
            command_id=command_id,
        )
        await start_prepared(self._calls, self.id, prepared)
        command = Command(self._calls, self.id, prepared.command_id)
        if prepared.feed is not None:
            command.feed_in_background(prepared.feed)
        return command

    def command(self, id: str) -> Command:
        """A handle of a command that was started earlier, by anyone. Asks nothing of the server."""
        return Command(self._calls, self.id, text(id, "id"))

    async def commands(self, *, running_only: bool = False, page_size: int = 0) -> AsyncGenerator[CommandInfo, None]:
        """The history of commands, oldest first."""
        request = m.ListCommandsRequest(self.id, whole_number(page_size, "page_size"), "", running_only)
        while True:
            page = await self._calls.call(m.LIST_COMMANDS, request, sandbox_id=self.id)
            for command in page.commands:
                yield command_info_of(command)
            request.page_token = page.next_page_token
            if request.page_token == "":
                return

    async def session(
        self,
        *,
        session_id: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        user: str | int | None = None,
    ) -> Session:
        """Opens a shell session, or takes up the open one of that ID ([A-Za-z0-9_-]{1,64}; default: a random one).

        >>> async with await sandbox.session(env={"GREETING": "hello"}) as session:
        ...     moved = await session.run("cd /tmp")
        ...     print((await session.run("echo $GREETING from $PWD")).stdout, end="")
        hello from /tmp
        """
        name = text(session_id, "session_id") or f"s{random_id(20)}"
        request = m.OpenSessionRequest(
            self.id, name, text(cwd, "cwd"), strings(env, "env"), strings(secret_env, "secret_env"), user_of(user)
        )
        await self._calls.call(m.OPEN_SESSION, request, sandbox_id=self.id)
        return Session(self._calls, self.id, name)

    async def sessions(self) -> list[SessionInfo]:
        """Sessions that are open now."""
        reply = await self._calls.call(m.LIST_SESSIONS, m.ListSessionsRequest(self.id), sandbox_id=self.id)
        return [
            SessionInfo(one.session_id, one.user, time_of(one.opened_at_ms), one.command_id, one.restarts)
            for one in reply.sessions
        ]

    async def terminal(
        self,
        command: CommandLine | None = None,
        *,
        rows: int = 24,
        cols: int = 80,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        timeout: float | None = None,
        command_id: str | None = None,
    ) -> Terminal:
        """An interactive terminal over a WebSocket.

        Args:
            command: Default: the user's login shell where the image has one, else the platform's bash.
            rows: Characters; so is `cols`.

        >>> async with await sandbox.terminal(["cat"]) as terminal:
        ...     await terminal.write("hello")
        ...     async for output in terminal:
        ...         print(output)
        ...         break
        b'hello'
        """
        return await open_terminal(
            self._calls,
            self.id,
            command,
            PtySize(whole_number(rows, "rows"), whole_number(cols, "cols")),
            cwd=cwd,
            env=env,
            secret_env=secret_env,
            user=user,
            timeout=timeout,
            command_id=command_id,
        )

    async def extend(self, by: float) -> datetime:
        """Makes the end of its life the later of what it is and now + `by` seconds; gives the end."""
        request = m.ExtendSandboxRequest(self.id, milliseconds(by, "by"))
        reply = await self._calls.call(m.EXTEND_SANDBOX, request, sandbox_id=self.id)
        return time_of(reply.expires_at_ms)

    async def stop(self, *, keep: float | None = None) -> SandboxInfo:
        """Ends it and removes its files; with `keep` they stay so many seconds. Accepted in every state, also twice."""
        request = m.StopSandboxRequest(self.id, milliseconds(keep, "keep"))
        reply = await self._calls.call(m.STOP_SANDBOX, request, sandbox_id=self.id)
        return sandbox_info_of(_present(reply.sandbox, self.id))

    async def delete(self) -> None:
        """Removes it and what `stop` kept. Accepted in every state, also twice."""
        await self._calls.call(m.DELETE_SANDBOX, m.DeleteSandboxRequest(self.id), sandbox_id=self.id)

    async def events(self) -> list[SandboxEvent]:
        """What happened to it, with the reason of its end."""
        reply = await self._calls.call(m.LIST_EVENTS, m.ListEventsRequest(self.id), sandbox_id=self.id)
        return [
            SandboxEvent(time_of(one.at_ms), one.type, name_of(m.END_REASON, one.end_reason), one.message)
            for one in reply.events
        ]

    async def usage(self) -> SandboxUsage:
        """What it uses now, and has used."""
        reply = await self._calls.call(m.GET_USAGE, m.GetUsageRequest(self.id), sandbox_id=self.id)
        usage = reply.usage or m.Usage()
        return SandboxUsage(
            cpu_seconds=usage.cpu_seconds,
            memory_bytes=usage.memory_bytes,
            peak_memory_bytes=usage.peak_memory_bytes,
            disk_bytes=usage.disk_bytes,
            processes=usage.processes,
            oom_kills=usage.oom_kills,
            pids_limit_hits=usage.pids_limit_hits,
        )

    async def update_network(self, rules: NetworkRules, *, version: int | None = None) -> NetworkUpdate:
        """Replaces the network rules. `version` must be higher than the last one (default: the time in milliseconds),
        else nothing changes."""
        number = int(time.time() * 1000) if version is None else whole_number(version, "version")
        request = m.UpdateNetworkRequest(self.id, rules_of(rules), number)
        reply = await self._calls.call(m.UPDATE_NETWORK, request, sandbox_id=self.id)
        return NetworkUpdate(reply.version, notices_of(reply.notices))

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops it; one that has ended already is no error."""
        try:
            await self.stop()
        except Exception as stopping:
            if error is None and not is_sandbox_gone(stopping):
                raise


def _present(sandbox: m.Sandbox | None, id: str) -> m.Sandbox:
    if sandbox is None:
        raise DsecError("INTERNAL", f"the answer about {id} holds no sandbox")
    return sandbox
