"""Projects, keys and quotas."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from ._http.calls import Calls
from ._wire import messages as m
from .command_options import milliseconds, number, text, whole_number
from .errors import DsecError, printable
from .results import date_of, name_of, number_of


@dataclass(frozen=True)
class Quota:
    """None: no limit of its own; those of the projects above still hold. Counts requests, not limits."""

    sandboxes: int | None = None
    cpu_cores: float | None = None
    memory_mb: int | None = None


@dataclass(frozen=True)
class Project:
    path: str
    quota: Quota
    #: In use now, projects below included.
    used: Quota
    created_at: datetime | None


@dataclass(frozen=True)
class Key:
    id: str
    project: str
    #: "viewer", "developer", "builder", "admin".
    role: str
    #: Who it is for.
    name: str
    created_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None


class NewKey(NamedTuple):
    key: Key
    #: In this answer alone.
    secret: str


class Projects:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def create(self, path: str, quota: Quota | None = None) -> Project:
        request = m.CreateProjectRequest(text(path, "path"), _wire_quota(quota))
        reply = await self._calls.call(m.CREATE_PROJECT, request, harmless=False)
        return _project_of(reply.project, path)

    async def list(self, path: str = "") -> list[Project]:
        """Projects at and below the path (default: the key's own)."""
        reply = await self._calls.call(m.LIST_PROJECTS, m.ListProjectsRequest(text(path, "path")))
        return [_project_of(project, project.path) for project in reply.projects]

    async def delete(self, path: str) -> None:
        """Raises DsecError PROJECT_IN_USE, saying by what."""
        await self._calls.call(m.DELETE_PROJECT, m.DeleteProjectRequest(text(path, "path")), harmless=False)

    async def set_quota(self, path: str, quota: Quota) -> Project:
        """Replaces the whole quota: what is None is unlimited."""
        request = m.SetQuotaRequest(text(path, "path"), _wire_quota(quota))
        reply = await self._calls.call(m.SET_QUOTA, request)
        return _project_of(reply.project, path)


class Keys:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def create(
        self, *, project: str = "", role: str = "developer", name: str = "", ttl: float | None = None
    ) -> NewKey:
        """Makes a key; its secret is in this answer alone.

        Args:
            role: "viewer", "developer", "builder" or "admin".
            name: Who it is for.
            ttl: Seconds after which it ends. Default: never.
        """
        found = number_of(m.ROLE, text(role, "role"))
        if found is None:
            raise DsecError("INVALID_ARGUMENT", f"{printable(role)} is no role: viewer, developer, builder, admin")
        request = m.CreateKeyRequest(text(project, "project"), found, text(name, "name"), milliseconds(ttl, "ttl"))
        reply = await self._calls.call(m.CREATE_KEY, request, harmless=False)
        return NewKey(_key_of(reply.key), reply.secret)

    async def list(self, project: str = "") -> list[Key]:
        reply = await self._calls.call(m.LIST_KEYS, m.ListKeysRequest(text(project, "project")))
        return [_key_of(key) for key in reply.keys]

    async def revoke(self, id: str) -> None:
        """Stops working within 5 s, open streams too."""
        await self._calls.call(m.REVOKE_KEY, m.RevokeKeyRequest(text(id, "id")))

    async def who_am_i(self) -> Key:
        """The key that this client uses."""
        reply = await self._calls.call(m.WHO_AM_I, m.WhoAmIRequest())
        return _key_of(reply.key)


def _wire_quota(quota: Quota | None) -> m.Quota:
    given = quota or Quota()
    return m.Quota(
        None if given.sandboxes is None else whole_number(given.sandboxes, "sandboxes"),
        None if given.cpu_cores is None else float(number(given.cpu_cores, "cpu_cores")),
        None if given.memory_mb is None else whole_number(given.memory_mb, "memory_mb"),
    )


def _quota_of(wire: m.Quota | None) -> Quota:
    return Quota() if wire is None else Quota(wire.sandboxes, wire.cpu_cores, wire.memory_mb)


def _project_of(wire: m.Project | None, path: str) -> Project:
    given = wire or m.Project(path)
    return Project(given.path, _quota_of(given.quota), _quota_of(given.used), date_of(given.created_at_ms))


def _key_of(wire: m.Key | None) -> Key:
    if wire is None:
        raise DsecError("INTERNAL", "the answer holds no key")
    return Key(
        id=wire.key_id,
        project=wire.project,
        role=name_of(m.ROLE, wire.role).lower(),
        name=wire.name,
        created_at=date_of(wire.created_at_ms),
        expires_at=date_of(wire.expires_at_ms),
        revoked_at=date_of(wire.revoked_at_ms),
    )
