"""Files and trees, both ways; a hostile archive; a terminal."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BASE
from support import Platform

import libdsec.sync
from libdsec import DSecClient, DsecError, InvalidArgumentError
from libdsec.files_tar import TarReader, tar_of
from libdsec.files_unpack import DownloadReport, Unpacker


def make_tree(root: Path) -> None:
    for number in range(60):
        below = root / f"d{number % 4}" / f"e{number % 3}"
        below.mkdir(parents=True, exist_ok=True)
        (below / f"file {number} é").write_bytes(os.urandom(number * 997))
    (root / "empty").touch()
    (root / ("n" * 150)).write_text("a long name")
    (root / "d0" / "script").write_text("#!/bin/sh\n")
    (root / "d0" / "script").chmod(0o755)
    (root / "link").symlink_to("d0/script")
    (root / "empty directory").mkdir(mode=0o700)
    os.link(root / "empty", root / "hard link")
    with open(os.fsencode(root) + b"/not utf-8 \xff", "wb") as file:
        file.write(b"odd")


async def test_a_tree_goes_up_and_comes_back(client: DSecClient, shared: str, tmp_path: Path) -> None:
    sandbox = client.sandbox(shared)
    tree = tmp_path / "tree"
    tree.mkdir()
    make_tree(tree)
    await sandbox.files.upload(tree, "/srv/deep/tree")
    assert (await sandbox.exec(["/srv/deep/tree/link"])).exit_code == 0
    report = await sandbox.files.download("/srv/deep/tree", tmp_path / "back")
    assert report.skipped == []
    diff = subprocess.run(["diff", "-r", "--no-dereference", tree, tmp_path / "back"], capture_output=True, text=True)
    assert (diff.returncode, diff.stdout) == (0, "")
    assert (tmp_path / "back/d0/script").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "back/empty directory").stat().st_mode & 0o777 == 0o700
    assert int((tmp_path / "back/d0/script").stat().st_mtime) == int((tree / "d0/script").stat().st_mtime)
    await sandbox.files.remove("/srv/deep", recursive=True)


async def test_a_large_file_goes_up_and_comes_back(client: DSecClient, shared: str, tmp_path: Path) -> None:
    sandbox = client.sandbox(shared)
    content = os.urandom(1 << 20) * 33
    (tmp_path / "large").write_bytes(content)
    (tmp_path / "large").chmod(0o640)
    await sandbox.files.upload(tmp_path / "large", "/srv/new/large")
    info = await sandbox.files.stat("/srv/new/large")
    assert (info.size_bytes, info.mode) == (len(content), 0o640)
    await sandbox.files.download("/srv/new/large", tmp_path / "below/back")
    assert (tmp_path / "below/back").read_bytes() == content
    assert (tmp_path / "below/back").stat().st_mode & 0o777 == 0o640
    assert await sandbox.files.read("/srv/new/large") == content
    assert b"".join([part async for part in sandbox.files.read_stream("/srv/new/large", offset=5)]) == content[5:]
    assert os.listdir(tmp_path / "below") == ["back"]
    await sandbox.files.remove("/srv/new", recursive=True)


async def test_content_from_any_source(client: DSecClient, shared: str, tmp_path: Path) -> None:
    files = client.sandbox(shared).files

    async def asynchronous() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"abc"

    (tmp_path / "file").write_bytes(b"abcabcabc")
    with open(tmp_path / "file", "rb") as opened, open(tmp_path / "file") as text:
        sources: list[Any] = [
            "abcabcabc",
            b"abcabcabc",
            bytearray(b"abcabcabc"),
            memoryview(b"abcabcabc"),
            ["abc", b"abc", "", "abc"],
            (part for part in (b"abc", b"abcabc")),
            asynchronous(),
            io.BytesIO(b"abcabcabc"),
            opened,
            text,
        ]
        for source in sources:
            await files.write("/tmp/source", source)
            assert await files.read("/tmp/source") == b"abcabcabc"
            await files.remove("/tmp/source")


async def test_a_write_that_fails_leaves_the_old_file(client: DSecClient, shared: str) -> None:
    files = client.sandbox(shared).files
    await files.write("/tmp/old", "old")

    def breaks() -> Iterator[bytes]:
        yield b"x" * 500_000
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="the source broke"):
        await files.write("/tmp/old", breaks())
    task = asyncio.ensure_future(files.write("/tmp/old", endless()))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(DsecError, match="/no/such"):
        await files.write("/no/such/directory", endless(50))
    assert await files.read_text("/tmp/old") == "old"


async def endless(count: int = 1 << 40) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * 100_000
        await asyncio.sleep(0)


async def test_a_download_that_is_cancelled_leaves_nothing(client: DSecClient, shared: str, tmp_path: Path) -> None:
    sandbox = client.sandbox(shared)
    await sandbox.exec(["truncate", "-s", "300M", "/tmp/holes"])
    task = asyncio.ensure_future(sandbox.files.download("/tmp/holes", tmp_path / "x"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DsecError, match="FILE_NOT_FOUND"):
        await sandbox.files.download("/tmp/nothing", tmp_path / "y")
    with pytest.raises(DsecError, match="IS_A_DIRECTORY"):
        await sandbox.files.download("/etc/passwd", tmp_path)
    await sandbox.files.remove("/tmp/holes")


async def test_changes_are_seen_as_they_come(client: DSecClient, shared: str) -> None:
    files = client.sandbox(shared).files
    await files.mkdir("/tmp/watched")
    seen = []
    events = files.watch("/tmp/watched")
    async for event in events:
        seen.append((event.type, event.path))
        if event.type == "ready":
            await files.write("/tmp/watched/new", "x")
        if event.type in ("created", "moved_to") and event.path == "new":
            break
    await events.aclose()
    assert seen[0] == ("ready", "")


def archive(*entries: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for entry in entries:
            tar.addfile(entry, io.BytesIO(b"x" * entry.size))
    return out.getvalue()


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0, mode: int = 0o644
) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size, made.mode = kind, link, size, mode
    return made


def unpacked(root: Path, data: bytes, step: int = 700) -> DownloadReport:
    unpacker = Unpacker(os.fsencode(root))
    reader = TarReader(unpacker)
    try:
        for at in range(0, len(data), step):
            reader.push(data[at : at + step])
        reader.finish()
        unpacker.finish()
    finally:
        unpacker.abandon()
    return unpacker.report


@pytest.mark.parametrize(
    "entries",
    [
        [entry("/etc/evil")],
        [entry("../evil")],
        [entry("a/../../evil")],
        [entry("out", tarfile.SYMTYPE, "inside"), entry("out/evil")],
        [entry("hard", tarfile.LNKTYPE, "../outside")],
        [entry("hard", tarfile.LNKTYPE, "/etc/passwd")],
        [entry("d", tarfile.DIRTYPE), entry("d")],
        [entry(".")],
    ],
    ids=lambda entries: " ".join(f"{one.name}>{one.linkname}" for one in entries),
)
def test_a_hostile_archive_writes_nothing_outside(entries: list[tarfile.TarInfo], tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").write_text("untouched")
    with pytest.raises(DsecError) as failed:
        unpacked(tmp_path / "root", archive(*entries))
    assert failed.value.reason in ("PATH_LEAVES_ROOT", "ARCHIVE_INVALID", "IS_A_DIRECTORY")
    assert sorted(os.listdir(tmp_path)) == ["outside", "root"]
    assert (tmp_path / "outside").read_text() == "untouched"


def test_links_that_lead_outside_and_devices_are_left_out(tmp_path: Path) -> None:
    report = unpacked(
        tmp_path,
        archive(
            entry("absolute", tarfile.SYMTYPE, "/etc/passwd"),
            entry("up", tarfile.SYMTYPE, "../x"),
            entry("d/through", tarfile.SYMTYPE, "a/../../x"),
            entry("d/fine", tarfile.SYMTYPE, "../file"),
            entry("device", tarfile.CHRTYPE),
            entry("file", size=3, mode=0o4755),
        ),
    )
    assert [one.name for one in report.skipped] == ["absolute", "up", "d/through", "device"]
    assert (tmp_path / "file").stat().st_mode & 0o7777 == 0o755
    assert sorted(os.listdir(tmp_path)) == ["d", "file"]


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_others_are_read_and_ours_by_others(format: int, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    make_tree(tree)
    ours = b"".join(tar_of(os.fsencode(tree)))
    with tarfile.open(fileobj=io.BytesIO(ours)) as tar:
        tar.extractall(tmp_path / "by others", filter="fully_trusted")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format, encoding="utf-8", errors="surrogateescape") as tar:
        tar.add(tree, ".", filter=lambda one: None if format == tarfile.USTAR_FORMAT and "nnnn" in one.name else one)
    (tmp_path / "by us").mkdir()
    for step in (511, 512, 1 << 20):
        unpacked(tmp_path / "by us", out.getvalue(), step)
    if format == tarfile.USTAR_FORMAT:
        (tree / ("n" * 150)).unlink()
        (tmp_path / "by others" / ("n" * 150)).unlink()
    for other in ("by others", "by us"):
        diff = subprocess.run(
            ["diff", "-r", "--no-dereference", tree, tmp_path / other], capture_output=True, text=True
        )
        assert (diff.returncode, diff.stdout) == (0, "")


def test_a_damaged_archive_is_an_error(tmp_path: Path) -> None:
    data = archive(entry("a", size=2000), entry("b", size=100))
    for damaged in (data[:1000], data[:512], b"", data[:100] + b"?" + data[101:], b"\x01" * 1024):
        with pytest.raises(InvalidArgumentError):
            unpacked(tmp_path, damaged)


async def test_a_terminal(client: DSecClient, shared: str) -> None:
    async with await client.sandbox(shared).terminal(["bash", "--norc", "-i"], env={"PS1": "$ "}) as terminal:
        await terminal.resize(33, 101)
        await terminal.write("locale charmap; printf '┌─┐\\n'; stty size\r")
        text = ""
        async for part in terminal:
            text += part.decode()
            if "33 101" in text and "exit 4" not in text:
                await terminal.write("exit 4\r")
        assert (await terminal.ended()).exit_code == 4
    assert "UTF-8" in text
    assert "\n┌─┐\r\n" in text


async def test_leaving_a_terminal_hangs_up(client: DSecClient, shared: str) -> None:
    sandbox = client.sandbox(shared)
    async with await sandbox.terminal(["sleep", "641"], rows=10, cols=20) as terminal:
        pass
    command = sandbox.command(terminal.command_id)
    assert (await command.wait()).signal == "SIGHUP"
    with pytest.raises(DsecError, match="CANCELLED"):
        await terminal.ended()


async def test_much_output_of_a_terminal_that_nobody_reads(client: DSecClient, shared: str) -> None:
    terminal = await client.sandbox(shared).terminal(["head", "-c", "8000000", "/dev/zero"])
    outcome = await asyncio.wait_for(terminal.ended(), 30)
    assert (outcome.exit_code, outcome.stdout_total_bytes) == (0, 8_000_000)


def test_the_twin_streams_and_has_terminals(platform: Platform, shared: str) -> None:
    with libdsec.sync.DSecClient(platform.endpoint, platform.api_key) as client:
        sandbox = client.sandbox(shared)
        told: list[tuple[bytes, bool]] = []
        # A function that is called with output may use the client itself.
        result = sandbox.run_shell(
            "echo a; echo b", on_stdout=lambda data: told.append((data, sandbox.exec(["true"]).ok))
        )
        assert (b"".join(data for data, _ in told), result.stdout) == (b"a\nb\n", "a\nb\n")
        assert all(ok for _, ok in told)
        terminal = sandbox.terminal(["sh", "-c", "read x; echo got $x"])
        terminal.write("this\n")
        assert b"got this" in b"".join(terminal)
        assert terminal.ended().exit_code == 0
        found = [one.sandbox for one in client.run_containers(BASE, count=3) if one.sandbox]
        assert [one.stop().state for one in found] == ["STOPPED"] * 3
