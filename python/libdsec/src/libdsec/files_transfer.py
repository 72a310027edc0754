"""Files and trees between here and a sandbox. Local files are read and written beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from .command_options import random_id, wrong_type
from .errors import DsecError, printable
from .files_tar import TarReader, tar_of
from .files_unpack import DownloadReport, Unpacker

if TYPE_CHECKING:
    from .files import Files, LocalPath, RemotePath

#: Bytes that are handed to the thread at once: one trip costs as much as copying many.
_BATCH = 1 << 20


async def upload(
    files: Files, local_path: LocalPath, remote_path: RemotePath, parents: bool, user: str | int | None
) -> None:
    local = _local(local_path)
    try:
        info = os.stat(local)
    except (FileNotFoundError, NotADirectoryError):
        raise DsecError("FILE_NOT_FOUND", f"{_shown(local)} is not here") from None
    if stat.S_ISDIR(info.st_mode):
        await files.write_tree(remote_path, tar_of(os.path.abspath(local)), user=user)
        return
    if not stat.S_ISREG(info.st_mode):
        raise DsecError("INVALID_ARGUMENT", f"{_shown(local)} is neither a file nor a directory")
    with open(local, "rb", buffering=0) as file:
        await files.write(remote_path, file, mode=info.st_mode & 0o777, parents=parents, user=user)


async def download(
    files: Files, remote_path: RemotePath, local_path: LocalPath, user: str | int | None
) -> DownloadReport:
    local = os.path.abspath(_local(local_path))
    info = await files.stat(remote_path, user=user)
    if info.type != "directory":
        return await _download_file(files, remote_path, local, info.mode & 0o777, user)
    os.makedirs(local, exist_ok=True)
    unpacker = Unpacker(local)
    reader = TarReader(unpacker)
    try:
        await _drain(files.read_tree(remote_path, user=user), reader.push)
        reader.finish()
        unpacker.finish()
    finally:
        unpacker.abandon()
    return unpacker.report


async def _download_file(
    files: Files, remote_path: RemotePath, target: bytes, mode: int, user: str | int | None
) -> DownloadReport:
    """The old file stays until the new one is whole."""
    if os.path.isdir(target) and not os.path.islink(target):
        raise DsecError("IS_A_DIRECTORY", f"{_shown(target)} is a directory here")
    directory, name = os.path.split(target)
    os.makedirs(directory, exist_ok=True)
    part = os.path.join(directory, b".%s.%s.part" % (name[:200], random_id(8).encode()))
    size = 0
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb", buffering=0) as out:

            def write(data: bytes) -> None:
                nonlocal size
                size += len(data)
                view = memoryview(data)
                while len(view) > 0:
                    view = view[out.write(view) :]

            await _drain(files.read_stream(remote_path, user=user), write)
            os.fchmod(out.fileno(), mode)
        os.rename(part, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        raise
    return DownloadReport(files=1, bytes=size)


async def _drain(parts: AsyncGenerator[bytes, None], take: Callable[[bytes], None]) -> None:
    """Hands what comes to `take`, in a thread, in batches; the next bytes come in meanwhile."""
    held: list[bytes] = []
    size = 0
    async with aclosing(parts) as source:
        async for part in source:
            held.append(part)
            size += len(part)
            if size >= _BATCH:
                await _in_thread(take, b"".join(held))
                held.clear()
                size = 0
    if held:
        await _in_thread(take, b"".join(held))


async def _in_thread(take: Callable[[bytes], None], data: bytes) -> None:
    """Also when the task is cancelled the thread is waited for: it uses files that are closed next."""
    working = asyncio.ensure_future(asyncio.to_thread(take, data))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await working
        raise


def _local(path: object) -> bytes:
    if isinstance(path, (str, bytes, os.PathLike)):
        return os.fsencode(path)
    raise wrong_type("local_path", path, "a path")


def _shown(path: bytes) -> str:
    return printable(path.decode("utf-8", "replace"))
