"""A sandbox as its edge describes it, and what happens in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from ._wire import messages as m
from .results import date_of, name_of


@dataclass(frozen=True)
class Notice:
    """What was asked and could not be honoured."""

    #: "LIMIT_CUT", "ONLY_LOOPBACK", …
    reason: str
    field: str
    message: str


@dataclass(frozen=True)
class LayerUse:
    kind: str
    name: str
    digest: str


@dataclass(frozen=True)
class SandboxInfo:
    id: str
    #: CREATING, RUNNING, PAUSING, PAUSED, RESUMING, STOPPING, STOPPED, LOST, or one of a newer server.
    state: str
    project: str
    edge: str
    backend: str
    labels: dict[str, str]
    job: str
    created_at: datetime | None
    ready_at: datetime | None
    expires_at: datetime | None
    idle_expires_at: datetime | None
    ended_at: datetime | None
    keep_until: datetime | None
    #: "" while it lives: STOPPED, TTL, IDLE, LEASE, OOM, LOST, NODE_REBOOT.
    end_reason: str
    layers: list[LayerUse]
    notices: list[Notice]
    #: MiB; 0: none.
    memory_limit_mb: int
    disk_limit_mb: int
    pids_limit: int
    #: Cores; 0: none.
    cpu_cores_limit: float
    memory_request_mb: int
    cpu_cores_request: float
    network_rules: dict[str, bool]
    network_version: int
    env_names: list[str]
    init_user: str
    working_dir: str
    #: ID of the key that made it.
    created_by: str
    #: ID of the sandbox in which it went on, or "".
    moved_to: str


@dataclass(frozen=True)
class SandboxEvent:
    at: datetime
    #: "CREATED", "READY", "EXTENDED", "NETWORK_UPDATED", "STOPPING", "ENDED", …
    type: str
    #: "" unless it ended.
    end_reason: str
    message: str


@dataclass(frozen=True)
class SandboxUsage:
    cpu_seconds: float
    memory_bytes: int
    peak_memory_bytes: int
    disk_bytes: int
    processes: int
    oom_kills: int
    pids_limit_hits: int


@dataclass(frozen=True)
class SessionInfo:
    id: str
    user: str
    opened_at: datetime
    #: ID of the command that runs in it now, or "".
    command_id: str
    #: Times its shell was started again after it ended.
    restarts: int


class NetworkUpdate(NamedTuple):
    version: int
    notices: list[Notice]


def notices_of(wire: list[m.Notice]) -> list[Notice]:
    return [Notice(one.reason, one.field, one.message) for one in wire]


def sandbox_info_of(wire: m.Sandbox) -> SandboxInfo:
    return SandboxInfo(
        id=wire.sandbox_id,
        state=name_of(m.SANDBOX_STATE, wire.state),
        project=wire.project,
        edge=wire.edge,
        backend=wire.backend,
        labels=wire.labels,
        job=wire.job,
        created_at=date_of(wire.created_at_ms),
        ready_at=date_of(wire.ready_at_ms),
        expires_at=date_of(wire.expires_at_ms),
        idle_expires_at=date_of(wire.idle_expires_at_ms),
        ended_at=date_of(wire.ended_at_ms),
        keep_until=date_of(wire.keep_until_ms),
        end_reason=name_of(m.END_REASON, wire.end_reason),
        layers=[LayerUse(one.kind, one.name, one.digest) for one in wire.layers],
        notices=notices_of(wire.notices),
        memory_limit_mb=wire.memory_limit_mb,
        disk_limit_mb=wire.disk_limit_mb,
        pids_limit=wire.pids_limit,
        cpu_cores_limit=wire.cpu_cores_limit,
        memory_request_mb=wire.memory_request_mb,
        cpu_cores_request=wire.cpu_cores_request,
        network_rules={} if wire.network_rules is None else wire.network_rules.allow,
        network_version=wire.network_version,
        env_names=wire.env_names,
        init_user=wire.init_user,
        working_dir=wire.working_dir,
        created_by=wire.created_by,
        moved_to=wire.moved_to,
    )
