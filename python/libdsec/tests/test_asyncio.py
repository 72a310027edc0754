"""The library among tasks, loops, threads and processes."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import BASE, NODE_LIMIT
from support import Platform

import libdsec.sync
from libdsec import ConnectionError, DSecClient, DsecError, Sandbox

ALL = os.environ.get("DSEC_TEST_ALL") == "1"


async def processes(sandbox: Sandbox, pattern: str) -> int:
    return int((await sandbox.exec(["pgrep", "-fc", pattern])).stdout)


async def until(sandbox: Sandbox, pattern: str, count: int) -> None:
    for _ in range(200):
        if await processes(sandbox, pattern) == count:
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"{count} of {pattern} were waited for")


async def test_cancelling_a_task_cancels_the_call_and_leaves_the_command(client: DSecClient, shared: str) -> None:
    sandbox = client.sandbox(shared)
    task = asyncio.create_task(sandbox.exec(["sleep", "631"]))
    await until(sandbox, "^sleep 631", 1)
    task.cancel()
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 0.5
    assert await processes(sandbox, "^sleep 631") == 1
    await sandbox.exec(["pkill", "-f", "^sleep 631"])


async def test_kill_on_cancel_ends_the_commands_tree(client: DSecClient, shared: str) -> None:
    sandbox = client.sandbox(shared)
    options: list[dict[str, Any]] = [{}, {"on_stdout": print}, {"stdin": b"x" * (2 << 20)}]
    for option in options:
        work = sandbox.run_shell("setsid sleep 632 & sleep 632", kill_on_cancel=True, **option)
        task = asyncio.ensure_future(work)
        await until(sandbox, "^sleep 632", 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await processes(sandbox, "^sleep 632") == 0


async def test_a_cancelled_stream_ends_its_command_if_asked(client: DSecClient, shared: str) -> None:
    sandbox = client.sandbox(shared)

    async def read() -> None:
        async for _ in sandbox.stream("echo on; sleep 633", kill_on_cancel=True):
            pass

    task = asyncio.create_task(read())
    await until(sandbox, "^sleep 633", 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await processes(sandbox, "^sleep 633") == 0


async def test_timeouts_of_asyncio_do_what_they_say(client: DSecClient, shared: str) -> None:
    sandbox = client.sandbox(shared)
    began = time.monotonic()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(sandbox.exec(["sleep", "60"], kill_on_cancel=True), 0.3)
    if sys.version_info >= (3, 11):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await sandbox.exec(["sleep", "60"], kill_on_cancel=True)
        with pytest.raises(ExceptionGroup) as failed:
            async with asyncio.TaskGroup() as group:
                group.create_task(sandbox.exec(["sleep", "60"], kill_on_cancel=True))
                group.create_task(sandbox.files.read("/no/such"))
        assert [error.reason for error in failed.value.exceptions] == ["FILE_NOT_FOUND"]
    assert time.monotonic() - began < 10
    assert (await sandbox.exec(["echo", "goes on"])).stdout == "goes on\n"


async def test_a_create_that_is_cancelled_leaves_no_sandbox(client: DSecClient) -> None:
    before = {info.id async for info in client.list()}
    for after in (0.0, 0.005, 0.02, 0.05):
        tasks = [asyncio.create_task(client.run_container(BASE)) for _ in range(5)]
        await asyncio.sleep(after)
        for task in tasks:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(one.stop() for one in done if isinstance(one, Sandbox)))
    await client.close()
    async with DSecClient(client.endpoint, client._calls.http.settings.api_key) as another:
        assert {info.id async for info in another.list()} <= before


async def test_leaving_a_batch_early_stops_the_rest(client: DSecClient) -> None:
    before = {info.id async for info in client.list()}
    results = client.run_containers(BASE, count=40, concurrency=10)
    async for result in results:
        assert result.sandbox is not None
        await result.sandbox.stop()
        break
    await results.aclose()
    await client.close()
    async with DSecClient(client.endpoint, client._calls.http.settings.api_key) as another:
        assert {info.id async for info in another.list()} <= before


async def test_a_thousand_in_one_gather(client: DSecClient) -> None:
    """More than three times what the node takes at once: no error reaches the caller, and nothing is left."""
    before = {info.id async for info in client.list()}
    most = 0

    async def one(number: int) -> str:
        nonlocal most
        sandbox = await client.run_container(BASE, timeout=300)
        most = max(most, connections_of(os.getpid(), client.endpoint))
        result = await sandbox.run_shell(f"echo {number}")
        await sandbox.stop()
        return result.stdout

    count = 10_000 if ALL else 1_000
    assert await asyncio.gather(*(one(number) for number in range(count))) == [f"{n}\n" for n in range(count)]
    assert {info.id async for info in client.list()} <= before
    assert most <= 64
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 300 << 10
    assert count > 3 * NODE_LIMIT


def connections_of(pid: int, endpoint: str) -> int:
    port = f":{int(endpoint.rsplit(':', 1)[1]):04X}"
    inodes = {
        fields[9]
        for fields in (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        if fields[2].endswith(port) and fields[3] == "01"
    }
    found = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(fd)
        except FileNotFoundError:
            continue
        found += target.startswith("socket:[") and target[8:-1] in inodes
    return found


async def test_calls_that_last_lock_nobody_out(platform: Platform, shared: str) -> None:
    async with DSecClient(platform.endpoint, platform.api_key, max_connections=4) as client:
        sandbox = client.sandbox(shared)
        await sandbox.files.remove("/tmp/go", missing_ok=True)
        waiting = [
            asyncio.create_task(sandbox.run_shell("while [ ! -e /tmp/go ]; do sleep 0.05; done")) for _ in range(12)
        ]
        await asyncio.sleep(0.1)
        await asyncio.wait_for(sandbox.files.write("/tmp/go", ""), 20)
        assert all(result.ok for result in await asyncio.wait_for(asyncio.gather(*waiting), 30))


def test_one_client_from_several_loops_and_threads(platform: Platform, shared: str) -> None:
    client = DSecClient(platform.endpoint, platform.api_key)
    sandbox = client.sandbox(shared)
    failed: list[BaseException] = []

    async def use() -> None:
        results = await asyncio.gather(*(sandbox.exec(["echo", str(n)]) for n in range(20)))
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(20)]

    def thread() -> None:
        try:
            for _ in range(2):
                asyncio.run(use())
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=thread) for _ in range(4)]
    for each in threads:
        each.start()
    asyncio.run(use())
    for each in threads:
        each.join()
    assert failed == []
    # Loops that have ended are not kept.
    asyncio.run(use())
    assert len(client._calls.http._pools) == 1


def test_under_uvloop(platform: Platform, shared: str) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def use() -> bytes:
        async with DSecClient(platform.endpoint, platform.api_key) as client:
            sandbox = client.sandbox(shared)
            await sandbox.files.write("/tmp/uv", bytes(range(256)) * 40_000)
            await asyncio.gather(*(sandbox.exec(["true"]) for _ in range(50)))
            terminal = await sandbox.terminal(["cat", "/tmp/uv"])
            assert (await terminal.ended()).exit_code == 0
            return await sandbox.files.read("/tmp/uv")

    loop = uvloop.new_event_loop()
    try:
        assert loop.run_until_complete(use()) == bytes(range(256)) * 40_000
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def test_after_a_fork_both_go_on(platform: Platform, shared: str) -> None:
    program = f"""
import asyncio, os, sys, libdsec, libdsec.sync
client = libdsec.DSecClient()
twin = libdsec.sync.DSecClient()
async def use(word):
    results = await asyncio.gather(*(client.sandbox({shared!r}).exec(["echo", word]) for _ in range(10)))
    assert all(result.stdout == word + "\\n" for result in results)
async def main():
    await use("before")
    pid = os.fork()
    if pid == 0:
        return pid
    await use("parent")
    return pid
assert twin.sandbox({shared!r}).exec(["echo", "x"]).ok
loop = asyncio.new_event_loop()
loop.run_until_complete(use("before"))
pid = os.fork()
asyncio.run(use("child" if pid == 0 else "parent"))
assert twin.sandbox({shared!r}).exec(["echo", "x"]).ok
if pid == 0:
    os._exit(0)
loop.run_until_complete(use("parent"))
assert os.waitpid(pid, 0)[1] == 0
loop.run_until_complete(loop.shutdown_asyncgens())
loop.close()
"""
    run_program(platform, program)


TEN_LINES = """
import asyncio
from libdsec import DSecClient, DSecContainerRunArgs
async def main():
    client = DSecClient()
    sandbox = client.sandbox({shared!r})
    async for chunk in sandbox.stream("echo streamed; sleep 5"):
        break
    left = sandbox.stream("echo streamed; sleep 5").__aiter__()
    await left.__anext__()
    waiting = asyncio.create_task(sandbox.exec(["sleep", "5"]))
    print((await sandbox.run_shell("echo hello")).stdout, end="")
asyncio.run(main())
"""
TEN_LINES_OF_THE_TWIN = """
from libdsec.sync import DSecClient
sandbox = DSecClient().sandbox({shared!r})
for chunk in sandbox.stream("echo streamed; sleep 5"):
    break
left = iter(sandbox.stream("echo streamed; sleep 5"))
next(left)
print(sandbox.run_shell("echo hello").stdout, end="")
"""


@pytest.mark.parametrize("program", [TEN_LINES, TEN_LINES_OF_THE_TWIN], ids=["asynchronous", "synchronous"])
def test_short_programs_end_in_silence(platform: Platform, shared: str, program: str) -> None:
    """Nothing is closed, a stream was left and a task still runs: exit code 0, and nothing on stderr."""
    for number in range(100 if ALL else 10):
        # Every other time with Python's development mode, which shows what is left open.
        flags = ["-X", "dev", "-W", "error"] if number % 2 else []
        assert run_program(platform, program.format(shared=shared), *flags) == "hello\n"


def run_program(platform: Platform, program: str, *flags: str) -> str:
    done = subprocess.run(
        [sys.executable, *flags, "-c", program], env=platform.env(), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_an_interrupt_ends_a_synchronous_call(platform: Platform, shared: str) -> None:
    program = f"""
from libdsec.sync import DSecClient
sandbox = DSecClient().sandbox({shared!r})
try:
    sandbox.exec(["sleep", "634"], kill_on_cancel=True)
except KeyboardInterrupt:
    print("interrupted")
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=platform.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with libdsec.sync.DSecClient(platform.endpoint, platform.api_key) as client:
        sandbox = client.sandbox(shared)
        for _ in range(500):
            if sandbox.exec(["pgrep", "-fc", "^sleep 634"]).stdout == "1\n":
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=30)
        assert (process.returncode, out, error) == (0, "interrupted\n", "")
        assert sandbox.exec(["pgrep", "-fc", "^sleep 634"]).stdout == "0\n"


async def test_close_ends_what_is_open(client: DSecClient, shared: str) -> None:
    sandbox = client.sandbox(shared)
    running = asyncio.create_task(sandbox.exec(["sleep", "1"]))
    await asyncio.sleep(0.2)
    await client.close()
    with pytest.raises(DsecError) as failed:
        await running
    assert failed.value.reason == "CANCELLED"
    with pytest.raises(DsecError, match="closed"):
        await sandbox.info()


async def test_an_address_where_nothing_answers_fails_soon() -> None:
    async with DSecClient("http://127.0.0.1:1", "k") as client:
        began = time.monotonic()
        with pytest.raises(ConnectionError, match=r"http://127\.0\.0\.1:1: Connection refused") as failed:
            await client.open()
        assert (failed.value.outcome, failed.value.retryable, failed.value.sent) == ("", True, False)
        with pytest.raises(ConnectionError):
            await client.run_container(BASE)
        assert time.monotonic() - began < 5
