"""What a command gave. A command that ran has a result, whatever it returned; faults of the platform are errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import NamedTuple

from ._wire import messages as m


class PerStream(NamedTuple):
    """A number for each of the two streams."""

    stdout: int
    stderr: int


@dataclass(frozen=True)
class CommandOutcome:
    """How a command ended."""

    #: None when a signal ended it. 127: no such program; 126: it may not run.
    exit_code: int | None
    #: "SIGKILL", or None when it exited.
    signal: str | None
    timed_out: bool
    oom_killed: bool
    #: Limits of the sandbox that it met: "memory", "pids", "disk".
    limit_hit: list[str]
    #: Seconds of wall time.
    duration: float
    #: Where the backend knows it.
    peak_memory_bytes: int | None
    #: Seconds, where the backend knows it.
    cpu_time: float | None
    #: The session's shell was gone, so this call ran in a fresh one.
    session_restarted: bool
    #: Bytes written in all, kept or not.
    stdout_total_bytes: int
    stderr_total_bytes: int

    @property
    def ok(self) -> bool:
        """It exited with 0."""
        return self.exit_code == 0


@dataclass(frozen=True)
class CommandResult(CommandOutcome):
    """How a command ended, and what it wrote."""

    command_id: str
    #: The bytes as written; where some are missing, head and tail.
    stdout_bytes: bytes = field(repr=False)
    stderr_bytes: bytes = field(repr=False)
    #: Bytes left out of each stream; 0: nothing is missing.
    truncated: PerStream
    #: Where in the bytes the gap is, when some were left out.
    gap_at: PerStream

    @property
    def stdout(self) -> str:
        """As UTF-8; what is no UTF-8 becomes U+FFFD (the bytes are in `stdout_bytes`)."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")


class Collected(NamedTuple):
    """Bytes kept of one stream: all, or head and tail with a gap."""

    data: bytes = b""
    dropped_bytes: int = 0
    gap_at: int = 0


@dataclass(frozen=True)
class CommandInfo:
    command_id: str
    #: "running", "ended".
    state: str
    started_at: datetime
    ended_at: datetime | None
    outcome: CommandOutcome | None
    #: Arguments as UTF-8, cut to 4 KiB; or the shell text.
    argv: list[str]
    shell: str | None
    cwd: str
    user: str
    env_names: list[str]
    session_id: str | None
    pty: bool


def _outcome_fields(wire: m.CommandOutcome) -> dict[str, object]:
    return {
        "exit_code": wire.exit_code,
        "signal": wire.signal or None,
        "timed_out": wire.timed_out,
        "oom_killed": wire.oom_killed,
        "limit_hit": [name_of(m.LIMIT_HIT, hit).lower() for hit in wire.limit_hit],
        "duration": wire.duration_ms / 1000,
        "peak_memory_bytes": wire.peak_memory_bytes,
        "cpu_time": None if wire.cpu_time_ms is None else wire.cpu_time_ms / 1000,
        "session_restarted": wire.session_restarted,
        "stdout_total_bytes": wire.stdout_bytes,
        "stderr_total_bytes": wire.stderr_bytes,
    }


def outcome_of(wire: m.CommandOutcome | None) -> CommandOutcome:
    return CommandOutcome(**_outcome_fields(wire or m.CommandOutcome()))  # type: ignore[arg-type]


def result_of(wire: m.CommandResult | None) -> CommandResult:
    given = wire or m.CommandResult()
    return make_result(given.command_id, outcome_of(given.outcome), _collected(given.stdout), _collected(given.stderr))


def make_result(command_id: str, outcome: CommandOutcome, stdout: Collected, stderr: Collected) -> CommandResult:
    return CommandResult(
        **outcome.__dict__,
        command_id=command_id,
        stdout_bytes=stdout.data,
        stderr_bytes=stderr.data,
        truncated=PerStream(stdout.dropped_bytes, stderr.dropped_bytes),
        gap_at=PerStream(stdout.gap_at, stderr.gap_at),
    )


def _collected(wire: m.CollectedOutput | None) -> Collected:
    return Collected() if wire is None else Collected(wire.data, wire.dropped_bytes, wire.gap_at)


def command_info_of(wire: m.CommandInfo) -> CommandInfo:
    return CommandInfo(
        command_id=wire.command_id,
        state=name_of(m.COMMAND_STATE, wire.state).lower(),
        started_at=time_of(wire.started_at_ms),
        ended_at=date_of(wire.ended_at_ms),
        outcome=None if wire.outcome is None else outcome_of(wire.outcome),
        argv=[part.decode("utf-8", "replace") for part in wire.argv],
        shell=wire.shell or None,
        cwd=wire.cwd,
        user=wire.user,
        env_names=wire.env_names,
        session_id=wire.session_id or None,
        pty=wire.pty,
    )


def name_of(names: dict[int, str], value: int) -> str:
    """One that this library does not know keeps its number."""
    return names.get(value, str(value))


def number_of(names: dict[int, str], name: str) -> int | None:
    """The number of a name, in any case."""
    upper = name.upper()
    return next((number for number, one in names.items() if one == upper and one), None)


def time_of(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, timezone.utc)


def date_of(ms: int) -> datetime | None:
    return time_of(ms) if ms > 0 else None
