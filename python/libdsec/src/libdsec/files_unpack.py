"""Writes a tar from a sandbox below a local directory. The archive is hostile: names are checked, nothing is written
through a link, no set-user bits, and links that lead outside are left out and reported."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import NamedTuple

from .errors import DsecError, printable
from .files_tar import TarEntry


class Skipped(NamedTuple):
    name: str
    why: str


@dataclass
class DownloadReport:
    files: int = 0
    bytes: int = 0
    #: Entries left out: devices, and links that lead out of the directory.
    skipped: list[Skipped] = field(default_factory=list)


class Unpacker:
    def __init__(self, root: bytes) -> None:
        self.report = DownloadReport()
        self._root = root
        #: Directories known to be real ones; nothing here ever turns one into a link.
        self._real: set[bytes] = set()
        self._modes: list[tuple[bytes, int]] = []
        self._fd = -1
        self._mtime = 0.0

    def entry(self, entry: TarEntry) -> None:
        parts = _parts(entry.name)
        if not parts:
            if entry.type != b"5":
                raise _bad(entry.name, "is no name below the directory")
            return
        directory = self._directory(parts[:-1])
        path = directory + b"/" + parts[-1]
        if entry.type == b"0":
            self._open(path, entry)
        elif entry.type == b"5":
            self._directory(parts)
            self._modes.append((path, entry.mode & 0o777))
        elif entry.type == b"2":
            self._link(path, entry, len(parts) - 1)
        elif entry.type == b"1":
            self._hard_link(path, entry)
        else:
            self._skip(entry.name, "neither file, directory nor link")

    def data(self, part: memoryview) -> None:
        self.report.bytes += len(part)
        while len(part) > 0:
            part = part[os.write(self._fd, part) :]

    def end(self) -> None:
        if self._fd < 0:
            return
        os.utime(self._fd, (self._mtime, self._mtime))
        os.close(self._fd)
        self._fd = -1
        self.report.files += 1

    def finish(self) -> None:
        """Directories get their modes last, so that read-only ones can be filled."""
        for path, mode in reversed(self._modes):
            os.chmod(path, mode)

    def abandon(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _directory(self, parts: list[bytes]) -> bytes:
        """Path of a directory below the root, made where it is missing; every part is seen to be no link."""
        whole = b"/".join([self._root, *parts])
        if whole in self._real:
            return whole
        path = self._root
        for part in parts:
            path += b"/" + part
            if path in self._real:
                continue
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                os.mkdir(path, 0o755)
            else:
                if stat.S_ISLNK(mode):
                    raise _bad(path, "lies behind a link")
                if not stat.S_ISDIR(mode):
                    raise DsecError("NOT_A_DIRECTORY", f"{_shown(path)} is no directory")
            self._real.add(path)
        return path

    def _open(self, path: bytes, entry: TarEntry) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o600)
        except FileExistsError:
            _clear(path)
            self._fd = os.open(path, flags, 0o600)
        os.fchmod(self._fd, entry.mode & 0o777)
        self._mtime = entry.mtime

    def _link(self, path: bytes, entry: TarEntry, depth: int) -> None:
        if _leads_outside(entry.link, depth):
            self._skip(entry.name, "a link that leads out of the directory")
            return
        _clear(path)
        os.symlink(entry.link, path)

    def _hard_link(self, path: bytes, entry: TarEntry) -> None:
        parts = _parts(entry.link)
        if not parts:
            raise _bad(entry.link, "is no name below the directory")
        target = self._directory(parts[:-1]) + b"/" + parts[-1]
        try:
            regular = stat.S_ISREG(os.lstat(target).st_mode)
        except FileNotFoundError:
            regular = False
        if not regular:
            raise DsecError("ARCHIVE_INVALID", f"a hard link to {_shown(entry.link)}, which is no file of the archive")
        if target != path:
            _clear(path)
            os.link(target, path)
        self.report.files += 1

    def _skip(self, name: bytes, why: str) -> None:
        self.report.skipped.append(Skipped(name.decode("utf-8", "replace"), why))


def _parts(name: bytes) -> list[bytes]:
    if name.startswith(b"/"):
        raise _bad(name, "is absolute")
    if b"\0" in name:
        raise _bad(name, "holds a NUL byte")
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise _bad(name, "leads upwards")
    return parts


def _clear(path: bytes) -> None:
    """Removes a file or link that is there; a directory is never replaced."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise DsecError("IS_A_DIRECTORY", f"{_shown(path)} is a directory where the archive has a file")
    os.unlink(path)


def _leads_outside(target: bytes, depth: int) -> bool:
    """A relative target that never climbs above the root stays inside, whatever other links of the tree say."""
    if not target or target.startswith(b"/"):
        return True
    descended = False
    for part in target.split(b"/"):
        if part in (b"", b"."):
            continue
        if part == b"..":
            depth -= 1
            # Upwards after a name: that name may be a link, so where it leads cannot be told from the text.
            if descended or depth < 0:
                return True
        else:
            descended = True
    return False


def _shown(name: bytes) -> str:
    return printable(name.decode("utf-8", "replace"))


def _bad(name: bytes, why: str) -> DsecError:
    return DsecError("PATH_LEAVES_ROOT", f"the archive's name {_shown(name)} {why}")
