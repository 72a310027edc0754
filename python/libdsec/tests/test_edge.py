"""Faults of the platform: the way there is taken up again, and what is lost is an error, never a result."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import BASE
from support import Platform

from libdsec import (
    DSecClient,
    DSecContainerRunArgs,
    DsecError,
    is_infrastructure_error,
    is_sandbox_gone,
)

LINES = "".join(f"line {i}\n" for i in range(40))
SLOW = "for ((i = 0; i < 40; i++)); do echo line $i; sleep 0.05; done"


async def test_an_edge_that_is_killed_and_started_again_is_not_seen_by_what_runs(
    platform: Platform, client: DSecClient, shared: str
) -> None:
    sandbox = client.sandbox(shared)
    session = await sandbox.session()
    terminal = await sandbox.terminal(["bash", "-c", f"stty -onlcr; {SLOW}; exit 4"])

    async def streamed() -> str:
        return "".join([chunk.data.decode() async for chunk in sandbox.stream(SLOW)])

    async def on_the_terminal() -> str:
        return b"".join([part async for part in terminal]).decode()

    pieces: list[bytes] = []
    running = [
        asyncio.ensure_future(work)
        for work in (
            sandbox.run_shell(f"{SLOW}; exit 3"),
            sandbox.run_shell(SLOW, on_stdout=pieces.append),
            session.run(f"{SLOW}; exit 5"),
            (await sandbox.start(SLOW)).wait(),
        )
    ]
    reading = [asyncio.ensure_future(streamed()), asyncio.ensure_future(on_the_terminal())]
    await asyncio.sleep(0.5)
    await asyncio.to_thread(platform.kill_edge)
    written = asyncio.ensure_future(sandbox.files.write("/tmp/meanwhile", "kept"))
    created = asyncio.ensure_future(client.run_container(BASE))
    await asyncio.sleep(0.3)
    await asyncio.to_thread(platform.start_edge)
    results = await asyncio.gather(*running)
    assert [(result.exit_code, result.stdout) for result in results] == [(code, LINES) for code in (3, 0, 5, 0)]
    assert b"".join(pieces).decode() == LINES
    assert await asyncio.gather(*reading) == [LINES, LINES]
    assert (await terminal.ended()).exit_code == 4
    await written
    assert await sandbox.files.read_text("/tmp/meanwhile") == "kept"
    await (await created).stop()


async def test_an_edge_that_does_not_come_back_is_an_infrastructure_error(platform: Platform, shared: str) -> None:
    async with DSecClient(platform.endpoint, platform.api_key, request_timeout=1.5) as client:
        sandbox = client.sandbox(shared)
        await sandbox.info()
        running: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(sandbox.exec(["sleep", "8"])),
            asyncio.ensure_future(sandbox.exec(["sleep", "8"], on_stdout=print)),
            asyncio.ensure_future(sandbox.stream(["sleep", "8"]).outcome()),
        ]
        await asyncio.sleep(0.5)
        await asyncio.to_thread(platform.kill_edge)
        try:
            running += [
                asyncio.ensure_future(sandbox.exec(["true"])),
                asyncio.ensure_future(sandbox.files.read("/etc/passwd")),
                asyncio.ensure_future(client.run_container(BASE, timeout=1.5)),
            ]
            for failed in await asyncio.gather(*running, return_exceptions=True):
                assert is_infrastructure_error(failed) or getattr(failed, "reason", "") == "CAPACITY_FULL", failed
        finally:
            await asyncio.to_thread(platform.start_edge)


async def test_what_ended_by_itself_says_why(client: DSecClient) -> None:
    idle = await client.run_container(DSecContainerRunArgs(container_image="base", ttl_running_stop=1))
    short = await client.run_container(DSecContainerRunArgs(container_image="base", ttl=1.5))
    with pytest.raises(DsecError) as failed:
        await short.exec(["sleep", "60"])
    assert is_sandbox_gone(failed.value)
    assert is_infrastructure_error(failed.value)
    assert failed.value.metadata["end_reason"] == "TTL"
    for _ in range(100):
        try:
            await idle.info()
        except DsecError as error:
            assert (error.reason, error.metadata["end_reason"]) == ("SANDBOX_ENDED", "IDLE")
            break
        await asyncio.sleep(0.1)
    else:
        pytest.fail("it did not end")


async def test_a_key_of_the_callers_own_never_makes_two(client: DSecClient) -> None:
    key = "key-of-the-callers-own"
    first, second = await asyncio.gather(*(client.run_container(BASE, create_key=key) for _ in range(2)))
    assert first.id == second.id
    with pytest.raises(DsecError) as failed:
        await client.run_container(DSecContainerRunArgs(container_image="base", memory_limit_mb=64), create_key=key)
    assert failed.value.reason == "IDEMPOTENCY_MISMATCH"
    await first.stop()


async def test_a_quota_is_an_error_at_once_or_waited_for(client: DSecClient) -> None:
    project = await client.projects.create("main/small", quota=None)
    await client.projects.set_quota("main/small", type(project.quota)(sandboxes=2))
    args = DSecContainerRunArgs(container_image="main/base", project="main/small")
    results = [result async for result in client.run_containers(args, count=4)]
    assert sorted(result.error.reason if result.error else "" for result in results) == [
        "",
        "",
        "QUOTA_EXCEEDED",
        "QUOTA_EXCEEDED",
    ]
    made = [result.sandbox for result in results if result.sandbox]
    waiting = asyncio.ensure_future(client.run_container(args, wait_for_quota=True))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await made[0].stop()
    await (await waiting).stop()
    await made[1].stop()
    await client.projects.delete("main/small")


async def test_a_stream_that_is_left_has_no_outcome(client: DSecClient, shared: str) -> None:
    stream = client.sandbox(shared).stream("echo a; sleep 0.2")
    chunks = stream.__aiter__()
    await chunks.__anext__()
    await chunks.aclose()
    with pytest.raises(DsecError) as failed:
        await stream.outcome()
    assert failed.value.reason == "CANCELLED"
    with pytest.raises(DsecError):
        stream.__aiter__()
