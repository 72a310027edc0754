"""Files of a sandbox, as its user (or the one given) sees them. No path leads out of the sandbox's root."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Union
from urllib.parse import quote_from_bytes

from . import files_transfer as transfer
from ._http.body import collect_body, read_body, send_body
from ._http.calls import Calls
from ._http.server_stream import server_stream
from ._wire import messages as m
from .command_options import InputSource, to_bytes, user_of, whole_number, wrong_type
from .errors import DsecError, is_reason
from .files_unpack import DownloadReport
from .results import name_of, time_of

#: str is UTF-8; bytes are for names that are not. Absolute, or relative to the sandbox's working directory.
RemotePath = Union[str, bytes, "os.PathLike[str]"]
LocalPath = Union[str, bytes, "os.PathLike[str]"]


@dataclass(frozen=True)
class FileInfo:
    #: Last part of the path as UTF-8 (of `stat`: the path as asked); `name_bytes` has the bytes.
    name: str
    name_bytes: bytes
    #: "file", "directory", "symlink", "other".
    type: str
    size_bytes: int
    #: Permission bits, 0 to 0o7777.
    mode: int
    uid: int
    gid: int
    modified_at: datetime
    #: Of a link, else "".
    link_target: str


@dataclass(frozen=True)
class FileEvent:
    #: "ready", "created", "modified", "removed", "moved_from", "moved_to", "attributes", "overflow" (list again).
    type: str
    #: Relative to the watched directory.
    path: str


class Files:
    """`Sandbox.files`. Every call takes `user`: name or number; default: the sandbox's init user.

    >>> await sandbox.files.write("/work/notes.txt", "hello", parents=True, mode=0o600)
    >>> await sandbox.files.read("/work/notes.txt", offset=1, length=3)
    b'ell'
    >>> (await sandbox.files.stat("/work/notes.txt")).size_bytes
    5
    >>> [entry.name for entry in await sandbox.files.list("/work")]
    ['notes.txt']
    """

    def __init__(self, calls: Calls, sandbox_id: str) -> None:
        self._calls = calls
        self._id = sandbox_id

    async def read(
        self, path: RemotePath, *, offset: int | None = None, length: int | None = None, user: str | int | None = None
    ) -> bytes:
        """Whole content; `offset` and `length` in bytes give a part.

        Raises:
            DsecError: FILE_NOT_FOUND, IS_A_DIRECTORY, FILE_PERMISSION
        """
        return await collect_body(self._calls, self._url("file", path, user, offset=offset, length=length), self._id)

    async def read_text(self, path: RemotePath, *, user: str | int | None = None) -> str:
        """Whole content as UTF-8; what is none becomes U+FFFD."""
        return (await self.read(path, user=user)).decode("utf-8", "replace")

    async def read_stream(
        self, path: RemotePath, *, offset: int | None = None, length: int | None = None, user: str | int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Content in pieces. A connection that breaks raises: what was given is a beginning."""
        url = self._url("file", path, user, offset=offset, length=length)
        async with aclosing(read_body(self._calls, url, self._id)) as parts:
            async for part in parts:
                yield part

    async def write(
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
            content: str (as UTF-8), bytes, a file opened here, or an (async) iterable of them.
            mode: Permission bits. Default: those of the file it replaces, else 0o644.
            parents: Make missing directories above it.
        """
        url = self._url("file", path, user, mode=mode, parents=parents)
        await send_body(self._calls, "PUT", url, content, self._id)

    async def stat(self, path: RemotePath, *, follow: bool = True, user: str | int | None = None) -> FileInfo:
        """Describes what is at the path; `follow=False` describes a link itself."""
        request = m.StatRequest(self._id, to_bytes(path, "path"), user_of(user), follow)
        reply = await self._calls.call(m.STAT, request, sandbox_id=self._id)
        if reply.file is None:
            raise DsecError("INTERNAL", "the answer to a stat holds no file")
        return _file_info_of(reply.file)

    async def exists(self, path: RemotePath, *, user: str | int | None = None) -> bool:
        """Something is there, be it a link that leads nowhere."""
        try:
            await self.stat(path, follow=False, user=user)
        except DsecError as error:
            if is_reason(error, "FILE_NOT_FOUND", "NOT_A_DIRECTORY"):
                return False
            raise
        return True

    async def list(self, path: RemotePath, *, user: str | int | None = None) -> list[FileInfo]:
        """Entries of a directory, sorted by name as bytes."""
        return [entry async for entry in self.entries(path, user=user)]

    async def entries(
        self, path: RemotePath, *, page_size: int = 5000, user: str | int | None = None
    ) -> AsyncGenerator[FileInfo, None]:
        """The same, page by page (at most 10,000), for large directories."""
        size = whole_number(page_size, "page_size")
        request = m.ListDirectoryRequest(self._id, to_bytes(path, "path"), user_of(user), size)
        while True:
            page = await self._calls.call(m.LIST_DIRECTORY, request, sandbox_id=self._id)
            for entry in page.entries:
                yield _file_info_of(entry)
            request.page_token = page.next_page_token
            if request.page_token == "":
                return

    async def mkdir(
        self, path: RemotePath, *, parents: bool = True, mode: int | None = None, user: str | int | None = None
    ) -> None:
        """Makes a directory, by default with those above it, and accepts that it is there. `mode` defaults to 0o755."""
        request = m.MakeDirectoryRequest(
            self._id, to_bytes(path, "path"), user_of(user), parents, whole_number(mode, "mode")
        )
        await self._calls.call(m.MAKE_DIRECTORY, request, sandbox_id=self._id, harmless=parents)

    async def move(
        self, source: RemotePath, target: RemotePath, *, overwrite: bool = False, user: str | int | None = None
    ) -> None:
        """Moves or renames. Raises DsecError FILE_EXISTS unless `overwrite`."""
        request = m.MoveRequest(
            self._id, to_bytes(source, "source"), to_bytes(target, "target"), user_of(user), overwrite
        )
        await self._calls.call(m.MOVE, request, sandbox_id=self._id, harmless=False)

    async def remove(
        self,
        path: RemotePath,
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        user: str | int | None = None,
    ) -> None:
        """Removes a file, or with `recursive` a tree."""
        request = m.RemoveRequest(self._id, to_bytes(path, "path"), user_of(user), recursive, missing_ok)
        await self._calls.call(m.REMOVE, request, sandbox_id=self._id, harmless=missing_ok)

    async def watch(
        self, path: RemotePath, *, recursive: bool = False, user: str | int | None = None
    ) -> AsyncGenerator[FileEvent, None]:
        """Changes below a directory from the "ready" event on, until the caller leaves the loop."""
        request = m.WatchRequest(self._id, to_bytes(path, "path"), user_of(user), recursive)
        async with aclosing(server_stream(self._calls, m.WATCH, request, self._id)) as replies:
            async for reply in replies:
                for event in reply.events:
                    yield FileEvent(
                        name_of(m.FILE_EVENT_TYPE, event.type).lower(), event.path.decode("utf-8", "replace")
                    )

    async def upload(
        self, local_path: LocalPath, remote_path: RemotePath, *, parents: bool = True, user: str | int | None = None
    ) -> None:
        """Sends a local file or tree; `remote_path` is what it becomes. Modes are kept, owners are the user."""
        await transfer.upload(self, local_path, remote_path, parents, user)

    async def download(
        self, remote_path: RemotePath, local_path: LocalPath, *, user: str | int | None = None
    ) -> DownloadReport:
        """Fetches a file or tree; `local_path` is what it becomes. Nothing is written outside it, whatever the sandbox
        sends."""
        return await transfer.download(self, remote_path, local_path, user)

    async def read_tree(self, path: RemotePath, *, user: str | int | None = None) -> AsyncGenerator[bytes, None]:
        """A tar (pax) of a tree, names relative to the path."""
        async with aclosing(read_body(self._calls, self._url("tree", path, user), self._id)) as parts:
            async for part in parts:
                yield part

    async def write_tree(self, path: RemotePath, tar: InputSource, *, user: str | int | None = None) -> None:
        """Unpacks a tar below the path, which is made."""
        await send_body(self._calls, "PUT", self._url("tree", path, user), tar, self._id)

    def _url(
        self,
        what: str,
        path: RemotePath,
        user: str | int | None,
        *,
        offset: int | None = None,
        length: int | None = None,
        mode: int | None = None,
        parents: bool = False,
    ) -> str:
        url = f"/v1/sandboxes/{self._id}/{what}?path={quote_from_bytes(to_bytes(path, 'path'))}"
        if user is not None:
            url += f"&user={quote_from_bytes(user_of(user).encode())}"
        if offset is not None:
            url += f"&offset={whole_number(offset, 'offset')}"
        if length is not None:
            url += f"&length={whole_number(length, 'length')}"
        if mode is not None:
            url += f"&mode=0{_mode(mode):o}"
        return url + ("&parents=1" if parents else "")


def _mode(mode: object) -> int:
    if isinstance(mode, bool) or not isinstance(mode, int):
        raise wrong_type("mode", mode, "int")
    if not 0 <= mode <= 0o7777:
        raise DsecError("INVALID_ARGUMENT", f"mode is {mode}; it must be within 0 and 0o7777")
    return mode


def _file_info_of(wire: m.FileInfo) -> FileInfo:
    return FileInfo(
        name=wire.name.decode("utf-8", "replace"),
        name_bytes=wire.name,
        type=name_of(m.FILE_TYPE, wire.type).lower(),
        size_bytes=wire.size_bytes,
        mode=wire.mode,
        uid=wire.uid,
        gid=wire.gid,
        modified_at=time_of(wire.modified_at_ms),
        link_target=wire.link_target.decode("utf-8", "replace"),
    )
