"""The synchronous twin: the same classes and calls without `await`.

    from libdsec import DSecContainerRunArgs
    from libdsec.sync import DSecClient

Works in scripts, in threads and inside a running loop (a notebook). Functions given as `on_stdout` are called in a
thread of the library's.
"""

# Made by tools/make_sync.py; do not edit.

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType

import libdsec as _async

from . import _portal
from .client import Traffic
from .command_options import (
    CommandLine,
    InputSource,
    PtySize,
)
from .errors import DsecError
from .files import FileEvent, FileInfo, LocalPath, RemotePath
from .files_unpack import DownloadReport
from .iam import Key, NewKey, Project, Quota
from .layers import Layer
from .nodes import NodeInfo
from .output_stream import OutputChunk
from .results import (
    CommandInfo,
    CommandOutcome,
    CommandResult,
    PerStream,
)
from .run_args import DSecContainerRunArgs, NetworkRules
from .sandbox_info import (
    NetworkUpdate,
    Notice,
    SandboxEvent,
    SandboxInfo,
    SandboxUsage,
    SessionInfo,
)


class CommandStream:
    """Iterate it once for the output; `outcome()` is how the command ended."""

    def __init__(self, inner: _async.CommandStream) -> None:
        self._inner = inner

    @property
    def command_id(self) -> str:
        return self._inner.command_id

    @property
    def offsets(self) -> PerStream:
        """Offsets behind the last bytes given."""
        return self._inner.offsets

    @property
    def info(self) -> CommandInfo | None:
        """Known once the first event has come."""
        return self._inner.info

    def outcome(self) -> CommandOutcome:
        """How the command ended; reads what is left of the stream if nobody did."""
        return _portal.run(self._inner.outcome())

    def __iter__(self) -> Iterator[OutputChunk]:
        return _portal.iterate(self._inner.__aiter__)


class Command:
    """A command that goes on by itself; any number of handles may hold one."""

    def __init__(self, inner: _async.Command) -> None:
        self._inner = inner

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def sandbox_id(self) -> str:
        return self._inner.sandbox_id

    def info(self) -> CommandInfo:
        """State, times and outcome. Raises DsecError COMMAND_NOT_FOUND."""
        return _portal.run(self._inner.info())

    def wait(self) -> CommandResult:
        """Waits for the end. The result's output is what was recorded."""
        return _portal.run(self._inner.wait())

    def poll(self) -> CommandResult | None:
        """The result if it has ended, else None; does not wait."""
        return _portal.run(self._inner.poll())

    def attach(self, *, stdout_offset: int = 0, stderr_offset: int = 0) -> CommandStream:
        """Output from the offsets (bytes) on, until the command ends. Several readers do not disturb each other."""
        return CommandStream(self._inner.attach(stdout_offset=stdout_offset, stderr_offset=stderr_offset))

    def output(self, *, cap_bytes: int = 16 << 20) -> CommandResult:
        """All output from the beginning, collected at the command's end, up to `cap_bytes` a stream (head and tail)."""
        return _portal.run(self._inner.output(cap_bytes=cap_bytes))

    def kill(self, signal: str | int = "SIGKILL", *, whole_tree: bool = True) -> None:
        """Sends a signal to the whole tree, or to the command's own process alone."""
        _portal.run(self._inner.kill(signal, whole_tree=whole_tree))

    def write_input(self, data: str | bytes, *, end: bool = False) -> None:
        """Writes to stdin, after what was written before; returns when the command's side took it."""
        _portal.run(self._inner.write_input(data, end=end))

    def close_input(self) -> None:
        """End of file on stdin."""
        _portal.run(self._inner.close_input())

    def pipe_input(self, source: InputSource) -> None:
        """Sends a whole source and then end of file."""
        _portal.run(self._inner.pipe_input(source))

    def resize(self, rows: int, cols: int) -> None:
        """Size of its terminal, in characters."""
        _portal.run(self._inner.resize(rows, cols))


class Session:
    """Made by `Sandbox.session`. One call at a time."""

    def __init__(self, inner: _async.Session) -> None:
        self._inner = inner

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def sandbox_id(self) -> str:
        return self._inner.sandbox_id

    def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        stdin: InputSource | None = None,
        timeout: float | None = None,
        output_cap_bytes: int | None = None,
        command_id: str | None = None,
        kill_on_cancel: bool = False,
        on_stdout: Callable[[bytes], object] | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
    ) -> CommandResult:
        """Runs shell text in the session's shell; arguments as of `Sandbox.exec`.

        Raises:
            DsecError: SESSION_BUSY while another call runs in it; SESSION_NOT_FOUND.
        """
        return _portal.run(
            self._inner.run(
                command,
                cwd=cwd,
                env=env,
                secret_env=secret_env,
                stdin=stdin,
                timeout=timeout,
                output_cap_bytes=output_cap_bytes,
                command_id=command_id,
                kill_on_cancel=kill_on_cancel,
                on_stdout=_portal.callback(on_stdout),
                on_stderr=_portal.callback(on_stderr),
            )
        )

    def close(self) -> None:
        """Ends every process that the session started."""
        _portal.run(self._inner.close())

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it; one that is gone already is no error."""
        _portal.run(self._inner.__aexit__(kind, error, trace))


class Terminal:
    """Made by `Sandbox.terminal`. Iterate it once for the output; leaving its `with` hangs up."""

    def __init__(self, inner: _async.Terminal) -> None:
        self._inner = inner

    @property
    def command_id(self) -> str:
        return self._inner.command_id

    def __iter__(self) -> Iterator[bytes]:
        """Output from the first byte on, until the command ends or the terminal is left."""
        return _portal.iterate(self._inner.__aiter__)

    def write(self, data: str | bytes) -> None:
        """Input: keys, as bytes or UTF-8. Kept and sent later while the connection is away."""
        _portal.run(self._inner.write(data))

    def resize(self, rows: int, cols: int) -> None:
        """New size, in characters."""
        _portal.run(self._inner.resize(rows, cols))

    def ended(self) -> CommandOutcome:
        """How the command ended; output that nobody reads is dropped. Raises DsecError when the platform lost it."""
        return _portal.run(self._inner.ended())

    def close(self) -> None:
        """Leaves the terminal; the command gets a hang-up."""
        _portal.run(self._inner.close())

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _portal.run(self._inner.__aexit__(kind, error, trace))


class Files:
    """`Sandbox.files`. Every call takes `user`: name or number; default: the sandbox's init user.

    >>> sandbox.files.write("/work/notes.txt", "hello", parents=True, mode=0o600)
    >>> sandbox.files.read("/work/notes.txt", offset=1, length=3)
    b'ell'
    >>> (sandbox.files.stat("/work/notes.txt")).size_bytes
    5
    >>> [entry.name for entry in sandbox.files.list("/work")]
    ['notes.txt']
    """

    def __init__(self, inner: _async.Files) -> None:
        self._inner = inner

    def read(
        self, path: RemotePath, *, offset: int | None = None, length: int | None = None, user: str | int | None = None
    ) -> bytes:
        """Whole content; `offset` and `length` in bytes give a part.

        Raises:
            DsecError: FILE_NOT_FOUND, IS_A_DIRECTORY, FILE_PERMISSION
        """
        return _portal.run(self._inner.read(path, offset=offset, length=length, user=user))

    def read_text(self, path: RemotePath, *, user: str | int | None = None) -> str:
        """Whole content as UTF-8; what is none becomes U+FFFD."""
        return _portal.run(self._inner.read_text(path, user=user))

    def read_stream(
        self, path: RemotePath, *, offset: int | None = None, length: int | None = None, user: str | int | None = None
    ) -> Iterator[bytes]:
        """Content in pieces. A connection that breaks raises: what was given is a beginning."""
        return _portal.iterate(lambda: self._inner.read_stream(path, offset=offset, length=length, user=user))

    def write(
        self,
        path: RemotePath,
        content: InputSource,
        *,
        mode: int | None = None,
        parents: bool = False,
        user: str | int | None = None,
    ) -> None:
        """Replaces the file at once when all is there; a failed write leaves the old one.

        Args:
            content: str (as UTF-8), bytes, a file opened here, or an iterable of them.
            mode: Permission bits. Default: those of the file it replaces, else 0o644.
            parents: Make missing directories above it.
        """
        _portal.run(self._inner.write(path, content, mode=mode, parents=parents, user=user))

    def stat(self, path: RemotePath, *, follow: bool = True, user: str | int | None = None) -> FileInfo:
        """Describes what is at the path; `follow=False` describes a link itself."""
        return _portal.run(self._inner.stat(path, follow=follow, user=user))

    def exists(self, path: RemotePath, *, user: str | int | None = None) -> bool:
        """Something is there, be it a link that leads nowhere."""
        return _portal.run(self._inner.exists(path, user=user))

    def list(self, path: RemotePath, *, user: str | int | None = None) -> list[FileInfo]:
        """Entries of a directory, sorted by name as bytes."""
        return _portal.run(self._inner.list(path, user=user))

    def entries(self, path: RemotePath, *, page_size: int = 5000, user: str | int | None = None) -> Iterator[FileInfo]:
        """The same, page by page (at most 10,000), for large directories."""
        return _portal.iterate(lambda: self._inner.entries(path, page_size=page_size, user=user))

    def mkdir(
        self, path: RemotePath, *, parents: bool = True, mode: int | None = None, user: str | int | None = None
    ) -> None:
        """Makes a directory, by default with those above it, and accepts that it is there. `mode` defaults to 0o755."""
        _portal.run(self._inner.mkdir(path, parents=parents, mode=mode, user=user))

    def move(
        self, source: RemotePath, target: RemotePath, *, overwrite: bool = False, user: str | int | None = None
    ) -> None:
        """Moves or renames. Raises DsecError FILE_EXISTS unless `overwrite`."""
        _portal.run(self._inner.move(source, target, overwrite=overwrite, user=user))

    def remove(
        self, path: RemotePath, *, recursive: bool = False, missing_ok: bool = False, user: str | int | None = None
    ) -> None:
        """Removes a file, or with `recursive` a tree."""
        _portal.run(self._inner.remove(path, recursive=recursive, missing_ok=missing_ok, user=user))

    def watch(self, path: RemotePath, *, recursive: bool = False, user: str | int | None = None) -> Iterator[FileEvent]:
        """Changes below a directory from the "ready" event on, until the caller leaves the loop."""
        return _portal.iterate(lambda: self._inner.watch(path, recursive=recursive, user=user))

    def upload(
        self, local_path: LocalPath, remote_path: RemotePath, *, parents: bool = True, user: str | int | None = None
    ) -> None:
        """Sends a local file or tree; `remote_path` is what it becomes. Modes are kept, owners are the user."""
        _portal.run(self._inner.upload(local_path, remote_path, parents=parents, user=user))

    def download(
        self, remote_path: RemotePath, local_path: LocalPath, *, user: str | int | None = None
    ) -> DownloadReport:
        """Fetches a file or tree; `local_path` is what it becomes. Nothing is written outside it, whatever the sandbox
        sends.
        """
        return _portal.run(self._inner.download(remote_path, local_path, user=user))

    def read_tree(self, path: RemotePath, *, user: str | int | None = None) -> Iterator[bytes]:
        """A tar (pax) of a tree, names relative to the path."""
        return _portal.iterate(lambda: self._inner.read_tree(path, user=user))

    def write_tree(self, path: RemotePath, tar: InputSource, *, user: str | int | None = None) -> None:
        """Unpacks a tar below the path, which is made."""
        _portal.run(self._inner.write_tree(path, tar, user=user))


class Sandbox:
    """Made by `DSecClient`. As a context manager it is stopped at the end."""

    def __init__(self, inner: _async.Sandbox) -> None:
        self._inner = inner

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def files(self) -> Files:
        return Files(self._inner.files)

    @property
    def notices(self) -> list[Notice]:
        return self._inner.notices

    def __repr__(self) -> str:
        return repr(self._inner)

    def info(self) -> SandboxInfo:
        """State, limits, clocks and layers."""
        return _portal.run(self._inner.info())

    def exec(
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
        on_stdout: Callable[[bytes], object] | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
    ) -> CommandResult:
        """Runs a program to its end. A command that ran gives a result whatever it returned; only faults of the
        platform raise. A connection that breaks meanwhile is taken up again, and the command never runs twice.

        Args:
            argv: The program and its arguments; str is sent as UTF-8.
            cwd: Absolute, or relative to the sandbox's working directory.
            env: Added to the sandbox's environment.
            secret_env: The same, but in no history, log or event.
            user: Name or number, optionally ":group". Default: the sandbox's init user.
            stdin: Whole input, then end of file; text, bytes, a file or an iterable. Default: /dev/null.
            timeout: Seconds; at the end the whole tree is killed and the result says `timed_out`. Default: none.
            pty: Run on a terminal (rows, columns); stderr is then part of stdout.
            output_cap_bytes: Bytes recorded a stream, half head, half tail. Default 16 MiB, at most 64 MiB.
            command_id: [A-Za-z0-9_-]{1,64}; asking again with it attaches, it never runs twice. Default: a random one.
            kill_on_cancel: An interrupt (Ctrl-C) ends the command's whole tree too. Else it goes on.
            on_stdout: Called with each piece as it comes; what it returns is awaited, which slows the command.
            on_stderr: The same for stderr.

        Raises:
            DsecError: EMPTY_COMMAND, INVALID_USER, SANDBOX_ENDED, SANDBOX_LOST, UNAVAILABLE, …

        >>> result = sandbox.exec(["sh", "-c", "cat; exit 3"], stdin="hello", timeout=10)
        >>> result.exit_code, result.stdout, result.timed_out
        (3, 'hello', False)
        """
        return _portal.run(
            self._inner.exec(
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
                kill_on_cancel=kill_on_cancel,
                on_stdout=_portal.callback(on_stdout),
                on_stderr=_portal.callback(on_stderr),
            )
        )

    def run_shell(
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
        on_stdout: Callable[[bytes], object] | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
    ) -> CommandResult:
        """Runs shell text in a bash of the platform's own (not the image's); arguments and errors as of `exec`."""
        return _portal.run(
            self._inner.run_shell(
                command,
                cwd=cwd,
                env=env,
                secret_env=secret_env,
                user=user,
                stdin=stdin,
                timeout=timeout,
                pty=pty,
                output_cap_bytes=output_cap_bytes,
                command_id=command_id,
                kill_on_cancel=kill_on_cancel,
                on_stdout=_portal.callback(on_stdout),
                on_stderr=_portal.callback(on_stderr),
            )
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
        >>> sorted([(chunk.stream, chunk.data, chunk.offset) for chunk in stream])
        [('stderr', b'err\\n', 0), ('stdout', b'out\\n', 0)]
        >>> (stream.outcome()).exit_code
        0
        """
        return CommandStream(
            self._inner.stream(
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
                kill_on_cancel=kill_on_cancel,
            )
        )

    def start(
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

        >>> command = sandbox.start(["sleep", "600"])
        >>> command.kill("SIGTERM")
        >>> (command.wait()).signal
        'SIGTERM'
        """
        return Command(
            _portal.run(
                self._inner.start(
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
            )
        )

    def command(self, id: str) -> Command:
        """A handle of a command that was started earlier, by anyone. Asks nothing of the server."""
        return Command(self._inner.command(id))

    def commands(self, *, running_only: bool = False, page_size: int = 0) -> Iterator[CommandInfo]:
        """The history of commands, oldest first."""
        return _portal.iterate(lambda: self._inner.commands(running_only=running_only, page_size=page_size))

    def session(
        self,
        *,
        session_id: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        user: str | int | None = None,
    ) -> Session:
        """Opens a shell session, or takes up the open one of that ID ([A-Za-z0-9_-]{1,64}; default: a random one).

        >>> with sandbox.session(env={"GREETING": "hello"}) as session:
        ...     moved = session.run("cd /tmp")
        ...     print((session.run("echo $GREETING from $PWD")).stdout, end="")
        hello from /tmp
        """
        return Session(
            _portal.run(self._inner.session(session_id=session_id, cwd=cwd, env=env, secret_env=secret_env, user=user))
        )

    def sessions(self) -> list[SessionInfo]:
        """Sessions that are open now."""
        return _portal.run(self._inner.sessions())

    def terminal(
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

        >>> with sandbox.terminal(["cat"]) as terminal:
        ...     terminal.write("hello")
        ...     for output in terminal:
        ...         print(output)
        ...         break
        b'hello'
        """
        return Terminal(
            _portal.run(
                self._inner.terminal(
                    command,
                    rows=rows,
                    cols=cols,
                    cwd=cwd,
                    env=env,
                    secret_env=secret_env,
                    user=user,
                    timeout=timeout,
                    command_id=command_id,
                )
            )
        )

    def extend(self, by: float) -> datetime:
        """Makes the end of its life the later of what it is and now + `by` seconds; gives the end."""
        return _portal.run(self._inner.extend(by))

    def stop(self, *, keep: float | None = None) -> SandboxInfo:
        """Ends it and removes its files; with `keep` they stay so many seconds. Accepted in every state, also twice."""
        return _portal.run(self._inner.stop(keep=keep))

    def delete(self) -> None:
        """Removes it and what `stop` kept. Accepted in every state, also twice."""
        _portal.run(self._inner.delete())

    def events(self) -> list[SandboxEvent]:
        """What happened to it, with the reason of its end."""
        return _portal.run(self._inner.events())

    def usage(self) -> SandboxUsage:
        """What it uses now, and has used."""
        return _portal.run(self._inner.usage())

    def update_network(self, rules: NetworkRules, *, version: int | None = None) -> NetworkUpdate:
        """Replaces the network rules. `version` must be higher than the last one (default: the time in milliseconds),
        else nothing changes.
        """
        return _portal.run(self._inner.update_network(rules, version=version))

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops it; one that has ended already is no error."""
        _portal.run(self._inner.__aexit__(kind, error, trace))


@dataclass(frozen=True)
class CreateManyResult:
    """One for each that was asked: a sandbox, or why there is none."""

    index: int
    sandbox: Sandbox | None
    error: DsecError | None


def _create_many_result(one: _async.CreateManyResult) -> CreateManyResult:
    return CreateManyResult(one.index, None if one.sandbox is None else Sandbox(one.sandbox), one.error)


class Layers:
    def __init__(self, inner: _async.Layers) -> None:
        self._inner = inner

    def import_(
        self,
        *,
        kind: str,
        name: str,
        format: str = "tar",
        body: InputSource | None = None,
        path: str | os.PathLike[str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        project: str | None = None,
        env: Iterable[str] = (),
        user: str | None = None,
        working_dir: str | None = None,
        built_from: str | None = None,
    ) -> Layer:
        """Sends content and enters it under the name; a new version is made.

        Args:
            kind: "base", "workspace" or "toolkit".
            name: "name" in the key's project.
            format: Of what is sent: "tar" (plain, gzip or zstd), "oci-archive", "docker-archive".
            body: The archive; or
            path: a file here; or
            directory: a directory here: its content becomes the layer, or with "oci-archive" it is an OCI layout.
            env: "NAME=VALUE", for what is no image.
            built_from: For people: where it came from.

        Raises:
            DsecError: ARCHIVE_INVALID, ARCHIVE_LIMIT, PERMISSION_DENIED
        """
        return _portal.run(
            self._inner.import_(
                kind=kind,
                name=name,
                format=format,
                body=body,
                path=path,
                directory=directory,
                project=project,
                env=env,
                user=user,
                working_dir=working_dir,
                built_from=built_from,
            )
        )

    def list(self, *, kinds: Iterable[str] = (), project: str = "", name_prefix: str = "") -> Iterator[Layer]:
        """Layers that the key may use; newest version of a name first."""
        return _portal.iterate(lambda: self._inner.list(kinds=kinds, project=project, name_prefix=name_prefix))

    def get(self, name: str) -> Layer:
        """Raises DsecError LAYER_NOT_FOUND."""
        return _portal.run(self._inner.get(name))

    def delete(self, name: str) -> None:
        """Raises DsecError LAYER_IN_USE, saying by what."""
        _portal.run(self._inner.delete(name))


class Projects:
    def __init__(self, inner: _async.Projects) -> None:
        self._inner = inner

    def create(self, path: str, quota: Quota | None = None) -> Project:
        return _portal.run(self._inner.create(path, quota))

    def list(self, path: str = "") -> list[Project]:
        """Projects at and below the path (default: the key's own)."""
        return _portal.run(self._inner.list(path))

    def delete(self, path: str) -> None:
        """Raises DsecError PROJECT_IN_USE, saying by what."""
        _portal.run(self._inner.delete(path))

    def set_quota(self, path: str, quota: Quota) -> Project:
        """Replaces the whole quota: what is None is unlimited."""
        return _portal.run(self._inner.set_quota(path, quota))


class Keys:
    def __init__(self, inner: _async.Keys) -> None:
        self._inner = inner

    def create(self, *, project: str = "", role: str = "developer", name: str = "", ttl: float | None = None) -> NewKey:
        """Makes a key; its secret is in this answer alone.

        Args:
            role: "viewer", "developer", "builder" or "admin".
            name: Who it is for.
            ttl: Seconds after which it ends. Default: never.
        """
        return _portal.run(self._inner.create(project=project, role=role, name=name, ttl=ttl))

    def list(self, project: str = "") -> list[Key]:
        return _portal.run(self._inner.list(project))

    def revoke(self, id: str) -> None:
        """Stops working within 5 s, open streams too."""
        _portal.run(self._inner.revoke(id))

    def who_am_i(self) -> Key:
        """The key that this client uses."""
        return _portal.run(self._inner.who_am_i())


class Nodes:
    def __init__(self, inner: _async.Nodes) -> None:
        self._inner = inner

    def list(self) -> list[NodeInfo]:
        return _portal.run(self._inner.list())


class DSecClient:
    """Talks to one platform. May be used from any number of tasks, event loops and threads, and after a fork.

    >>> with DSecClient() as client:
    ...     args = DSecContainerRunArgs(container_image="base", memory_limit_mb=512)
    ...     with client.run_container(args) as sandbox:
    ...         print((sandbox.run_shell("echo hello")).stdout, end="")
    hello
    """

    @property
    def endpoint(self) -> str:
        return self._inner.endpoint

    @property
    def layers(self) -> Layers:
        return Layers(self._inner.layers)

    @property
    def projects(self) -> Projects:
        return Projects(self._inner.projects)

    @property
    def keys(self) -> Keys:
        return Keys(self._inner.keys)

    @property
    def nodes(self) -> Nodes:
        return Nodes(self._inner.nodes)

    def __init__(
        self,
        endpoint: str | None = None,
        api_key: str | None = None,
        *,
        request_timeout: float = 60.0,
        max_connections: int = 64,
    ) -> None:
        """Connects with the first call, or with `open`.

        Args:
            endpoint: "http://host:port". Default: DSEC_ENDPOINT, else the configuration file.
            api_key: Default: DSEC_API_KEY, else the configuration file.
            request_timeout: Seconds for one call, and within which an interrupted one is taken up again.
            max_connections: Calls on the way at once, for each event loop; more wait here. Commands, streams and
                transfers are not counted after their first second.

        Raises:
            DsecError: NOT_CONFIGURED, INVALID_ARGUMENT
        """
        self._inner = _async.DSecClient(
            endpoint, api_key, request_timeout=request_timeout, max_connections=max_connections
        )

    def __repr__(self) -> str:
        return repr(self._inner)

    def open(self) -> DSecClient:
        """Makes sure that the platform is there and knows the key. Without it the first call does.

        Raises:
            DsecError: UNAVAILABLE, UNAUTHENTICATED
        """
        _portal.run(self._inner.open())
        return self

    def run_container(
        self,
        args: DSecContainerRunArgs,
        *,
        timeout: float = 120.0,
        create_key: str | None = None,
        wait_for_quota: bool = False,
    ) -> Sandbox:
        """Creates a container sandbox and returns when a command has been answered in it.

        Any number may be asked at once: what the platform has no room for waits, with jitter, until `timeout` is over.
        An interrupt (Ctrl-C) stops what was made meanwhile.

        Args:
            timeout: Seconds until it must be ready, waiting for capacity included. Time in this client's own queue
                (more than 48 creates at once) is not counted.
            create_key: [A-Za-z0-9_-]{8,64}. The same key never makes two sandboxes. Default: a random one.
            wait_for_quota: Wait for quota as for capacity, instead of failing with QUOTA_EXCEEDED.

        Raises:
            DsecError: CAPACITY_FULL, QUOTA_EXCEEDED, NEVER_FITS, LAYER_NOT_FOUND, INVALID_LIMIT, …
        """
        return Sandbox(
            _portal.run(
                self._inner.run_container(args, timeout=timeout, create_key=create_key, wait_for_quota=wait_for_quota)
            )
        )

    def run_containers(
        self,
        args: DSecContainerRunArgs,
        *,
        count: int,
        concurrency: int = 32,
        timeout: float = 120.0,
        wait_for_quota: bool = False,
    ) -> Iterator[CreateManyResult]:
        """Creates `count` of them; yields each, or its error, as it becomes ready. Leaving the loop early or
        closing the iterator stops the rest.

        Args:
            concurrency: Creates in flight at once.
            timeout: Seconds for each.

        >>> for result in client.run_containers(DSecContainerRunArgs("base"), count=3):
        ...     print(result.error or (result.sandbox.stop()).state)
        STOPPED
        STOPPED
        STOPPED
        """
        return map(
            _create_many_result,
            _portal.iterate(
                lambda: self._inner.run_containers(
                    args, count=count, concurrency=concurrency, timeout=timeout, wait_for_quota=wait_for_quota
                )
            ),
        )

    def connect(self, id: str) -> Sandbox:
        """A handle of a sandbox that exists. Raises DsecError SANDBOX_NOT_FOUND, SANDBOX_ENDED, SANDBOX_LOST."""
        return Sandbox(_portal.run(self._inner.connect(id)))

    def sandbox(self, id: str) -> Sandbox:
        """The same without asking the server: the first call tells whether it is there."""
        return Sandbox(self._inner.sandbox(id))

    def list(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        job: str | None = None,
        project: str | None = None,
        states: Iterable[str] = (),
        recursive: bool = False,
        page_size: int = 500,
        on_unreachable: Callable[[list[str]], None] | None = None,
    ) -> Iterator[SandboxInfo]:
        """Sandboxes that match, page by page.

        Args:
            labels: All must match.
            states: "RUNNING", … Default: those that live.
            recursive: Also projects below.
            page_size: At most 1000.
            on_unreachable: Told the edges that did not answer: their sandboxes are missing in the list.

        >>> [info.state for info in client.list(labels={"made-by": "nobody"})]
        []
        """
        return _portal.iterate(
            lambda: self._inner.list(
                labels=labels,
                job=job,
                project=project,
                states=states,
                recursive=recursive,
                page_size=page_size,
                on_unreachable=on_unreachable,
            )
        )

    def traffic(self) -> Traffic:
        """What is under way in this event loop, for watching a burst.

        >>> (client.traffic()).creates_waiting
        0
        """
        return _portal.run(self._inner.traffic())

    def close(self) -> None:
        """The same, after what was given up by a cancelled task has been put away (at most some seconds)."""
        _portal.run(self._inner.close())

    def __enter__(self) -> DSecClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _portal.run(self._inner.__aexit__(kind, error, trace))
