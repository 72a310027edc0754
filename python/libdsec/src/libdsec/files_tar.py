"""Tar archives of trees (ustar; pax where a name, link or size does not fit). Names are bytes throughout.

The standard library's tarfile takes several times as long for each entry, and cannot be fed in pieces.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from .errors import DsecError

_BLOCK = 512
_PIECE = 1 << 20
_MAX_EXTENDED = 1 << 20


def tar_of(root: bytes) -> Iterator[bytes]:
    """Archive of what is below `root`; names are relative to it. Sockets, pipes and devices are left out."""
    batch = bytearray()
    for part in _walk(root, b""):
        batch += part
        if len(batch) >= _PIECE:
            yield bytes(batch)
            batch.clear()
    batch += bytes(2 * _BLOCK)
    yield bytes(batch)


def _walk(directory: bytes, prefix: bytes) -> Iterator[bytes]:
    with os.scandir(directory) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        name = prefix + entry.name
        if entry.is_symlink():
            yield _headers(name, entry.stat(follow_symlinks=False), b"2", 0, os.readlink(entry.path))
        elif entry.is_dir(follow_symlinks=False):
            yield _headers(name + b"/", entry.stat(follow_symlinks=False), b"5", 0)
            yield from _walk(entry.path, name + b"/")
        elif entry.is_file(follow_symlinks=False):
            yield from _file(entry.path, name)


def _file(path: bytes, name: bytes) -> Iterator[bytes]:
    """A file that shrinks or grows while it is read keeps the size that its header says."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return
        yield _headers(name, info, b"0", info.st_size)
        left = info.st_size
        while left > 0:
            part = os.read(fd, min(left, _PIECE)) or bytes(min(left, _PIECE))
            left -= len(part)
            yield part
        if info.st_size % _BLOCK:
            yield bytes(_BLOCK - info.st_size % _BLOCK)
    finally:
        os.close(fd)


def _headers(name: bytes, info: os.stat_result, type: bytes, size: int, link: bytes = b"") -> bytes:
    head = _header(name, info.st_mode & 0o7777, size, max(0, int(info.st_mtime)), type, link)
    if len(name) <= 100 and len(link) <= 100 and size < 8**11:
        return head
    body = b""
    if len(name) > 100:
        body += _record(b"path", name)
    if len(link) > 100:
        body += _record(b"linkpath", link)
    if size >= 8**11:
        body += _record(b"size", b"%d" % size)
    return _header(b"PaxHeader", 0o644, len(body), 0, b"x") + body + bytes(-len(body) % _BLOCK) + head


def _record(key: bytes, value: bytes) -> bytes:
    """ "LENGTH key=value\\n", where LENGTH counts itself."""
    rest = b" %s=%s\n" % (key, value)
    length = len(rest)
    while len(b"%d" % length) + len(rest) != length:
        length = len(b"%d" % length) + len(rest)
    return b"%d%s" % (length, rest)


def _header(name: bytes, mode: int, size: int, mtime: int, type: bytes, link: bytes = b"") -> bytes:
    before = b"%s%07o\0%07o\0%07o\0%011o\0%011o\0" % (
        name[:100].ljust(100, b"\0"),
        mode,
        0,
        0,
        size if size < 8**11 else 0,
        mtime,
    )
    after = b"%s%sustar\x0000" % (type, link[:100].ljust(100, b"\0"))
    total = sum(before) + sum(after) + 8 * 32
    return (b"%s%06o\0 %s" % (before, total, after)).ljust(_BLOCK, b"\0")


@dataclass
class TarEntry:
    name: bytes
    #: b"0" file, b"1" hard link, b"2" link, b"5" directory; others as in the archive.
    type: bytes
    mode: int
    size: int
    #: Unix seconds.
    mtime: float
    link: bytes


class TarSink(Protocol):
    def entry(self, entry: TarEntry) -> None: ...

    def data(self, part: memoryview) -> None:
        """Content of the last entry, in order."""

    def end(self) -> None:
        """The last entry's content is whole."""


class TarReader:
    """Reads a tar as it comes. What it says is not trusted: sizes are checked here, names by whoever writes them."""

    def __init__(self, sink: TarSink) -> None:
        self._sink = sink
        self._held = b""
        self._left = 0
        self._padding = 0
        #: Type and content so far of an extended header.
        self._extended: tuple[bytes, bytearray] | None = None
        self._path: bytes | None = None
        self._link: bytes | None = None
        self._size: int | None = None
        self._mtime: float | None = None
        self._done = False

    def push(self, chunk: bytes) -> None:
        """Raises DsecError ARCHIVE_INVALID, and whatever the sink raises."""
        data = self._held + chunk if self._held else chunk
        view = memoryview(data)
        at = 0
        while at < len(data) and not self._done:
            if self._left > 0:
                part = view[at : at + self._left]
                self._left -= len(part)
                at += len(part)
                if self._extended is not None:
                    self._extended[1].extend(part)
                else:
                    self._sink.data(part)
                if self._left == 0:
                    self._content()
            elif self._padding > 0:
                skipped = min(self._padding, len(data) - at)
                self._padding -= skipped
                at += skipped
            elif len(data) - at < _BLOCK:
                break
            else:
                self._header(data[at : at + _BLOCK])
                at += _BLOCK
        self._held = b"" if self._done else data[at:]

    def finish(self) -> None:
        """Raises DsecError ARCHIVE_INVALID when the archive was cut short."""
        if not self._done:
            raise DsecError("ARCHIVE_INVALID", "the archive was cut short")

    def _header(self, head: bytes) -> None:
        if head.count(0) == _BLOCK:
            self._done = True
            return
        if sum(head) - sum(head[148:156]) + 8 * 32 != _number(head[148:156]):
            raise DsecError("ARCHIVE_INVALID", "a header's checksum is wrong")
        type = head[156:157]
        if type in (b"\0", b"7"):
            type = b"0"
        size = _number(head[124:136])
        if type in (b"x", b"g", b"L", b"K"):
            if size > _MAX_EXTENDED:
                raise DsecError("ARCHIVE_INVALID", f"an extended header of {size} bytes")
            self._extended = (type, bytearray())
            self._begin(size)
            return
        size = (size if self._size is None else self._size) if type == b"0" else 0
        prefix = _until_nul(head[345:500]) if head[257:263] == b"ustar\0" else b""
        short = _until_nul(head[:100])
        entry = TarEntry(
            name=self._path if self._path is not None else prefix + b"/" + short if prefix else short,
            type=type,
            mode=_number(head[100:108]),
            size=size,
            mtime=_number(head[136:148]) if self._mtime is None else self._mtime,
            link=_until_nul(head[157:257]) if self._link is None else self._link,
        )
        self._path = self._link = self._size = self._mtime = None
        self._sink.entry(entry)
        self._begin(size)

    def _begin(self, size: int) -> None:
        self._left = size
        self._padding = -size % _BLOCK
        if size == 0:
            self._content()

    def _content(self) -> None:
        if self._extended is None:
            self._sink.end()
            return
        type, body = self._extended[0], bytes(self._extended[1])
        self._extended = None
        if type == b"L":
            self._path = _until_nul(body)
        elif type == b"K":
            self._link = _until_nul(body)
        elif type == b"x":
            self._pax(body)

    def _pax(self, body: bytes) -> None:
        at = 0
        try:
            while at < len(body):
                space = body.index(b" ", at)
                length = int(body[at:space])
                if length <= space - at + 1 or at + length > len(body):
                    raise ValueError
                key, equals, value = body[space + 1 : at + length - 1].partition(b"=")
                if not equals:
                    raise ValueError
                if key == b"path":
                    self._path = value
                elif key == b"linkpath":
                    self._link = value
                elif key == b"size":
                    if not value.isdigit():
                        raise ValueError
                    self._size = _checked(int(value))
                elif key == b"mtime":
                    self._mtime = float(value)
                at += length
        except ValueError:
            raise DsecError("ARCHIVE_INVALID", "a damaged pax header") from None


def _until_nul(data: bytes) -> bytes:
    return data.split(b"\0", 1)[0]


def _number(data: bytes) -> int:
    """Octal text, or GNU's base 256."""
    if data[0] & 0x80:
        return _checked(int.from_bytes(data[1:], "big"))
    text = data.rstrip(b"\0 ").strip()
    if not text:
        return 0
    try:
        return _checked(int(text, 8))
    except ValueError:
        raise DsecError("ARCHIVE_INVALID", "a number in a header is damaged") from None


def _checked(value: int) -> int:
    if not 0 <= value < 1 << 53:
        raise DsecError("ARCHIVE_INVALID", "a number in a header is too large")
    return value
