"""The nodes behind the platform, as placement sees them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ._http.calls import Calls
from ._wire import messages as m
from .results import time_of


@dataclass(frozen=True)
class NodeInfo:
    edge: str
    healthy: bool
    accepting: bool
    not_accepting_reason: str
    cpus: float
    memory_mb: int
    #: What may be promised: size times overcommit.
    cpu_cores_capacity: float
    memory_mb_capacity: int
    cpu_cores_requested: float
    memory_mb_requested: int
    sandboxes: int
    max_sandboxes: int
    #: Real use, 0 to 1.
    cpu_busy: float
    memory_mb_available: int
    backends: list[str]
    started_at: datetime


class Nodes:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def list(self) -> list[NodeInfo]:
        reply = await self._calls.call(m.LIST_NODES, m.ListNodesRequest())
        return [
            NodeInfo(
                edge=node.edge,
                healthy=node.healthy,
                accepting=node.accepting,
                not_accepting_reason=node.not_accepting_reason,
                cpus=node.cpus,
                memory_mb=node.memory_mb,
                cpu_cores_capacity=node.cpu_cores_capacity,
                memory_mb_capacity=node.memory_mb_capacity,
                cpu_cores_requested=node.cpu_cores_requested,
                memory_mb_requested=node.memory_mb_requested,
                sandboxes=node.sandboxes,
                max_sandboxes=node.max_sandboxes,
                cpu_busy=node.cpu_busy,
                memory_mb_available=node.memory_mb_available,
                backends=node.backends,
                started_at=time_of(node.started_at_ms),
            )
            for node in reply.nodes
        ]
