"""Servers that are none, and arguments that are wrong: each a clear, typed error."""

from __future__ import annotations

import asyncio
import math
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import BASE
from support import Platform

from libdsec import (
    ConnectionError,
    DSecClient,
    DSecContainerRunArgs,
    DsecError,
    InvalidArgumentError,
    NotFoundError,
    Quota,
    StartCommand,
    UnauthenticatedError,
    is_infrastructure_error,
    load_settings,
)

ID = "a" + "b" * 20


@asynccontextmanager
async def server_that_says(answer: bytes | None) -> AsyncIterator[DSecClient]:
    """One that answers every request with these bytes, and closes; without bytes it never answers."""
    open_ones: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(writer)
        await reader.readuntil(b"\r\n\r\n")
        if answer is not None:
            writer.write(answer)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        address = "http://127.0.0.1:%d" % server.sockets[0].getsockname()[1]
        async with DSecClient(address, "dsec_k_s", request_timeout=0.4) as client:
            yield client
        for writer in open_ones:
            writer.transport.abort()
        await asyncio.sleep(0.01)


def answer(body: bytes, kind: str, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (
        status.encode(),
        kind.encode(),
        len(body),
        body,
    )


STRANGERS = {
    "a proxy's page": (answer(b"<html><h1>Sign in</h1></html>", "text/html"), "INTERNAL", "text/html.*Sign in"),
    "a proxy's 502": (answer(b"<h1>Bad gateway</h1>", "text/html", "502 Bad Gateway"), "UNAVAILABLE", "502.*Bad gat"),
    "a proxy's 401": (answer(b"login", "text/html", "401 Unauthorized"), "UNAUTHENTICATED", "401"),
    "an older version": (
        answer(b'{"code":"unimplemented","message":"no such method"}', "application/json", "404 Not Found"),
        "NO_SUCH_METHOD",
        "no such method",
    ),
    "another program's JSON": (answer(b'{"hello": 1}', "application/json"), "INTERNAL", "no answer of DSec's"),
    "another program": (b"220 mail.example ESMTP\r\n", "UNAVAILABLE", "is no HTTP answer"),
    "nothing": (b"", "UNAVAILABLE", "closed the connection without an answer"),
    "half an answer": (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\ncontent-length: 100\r\n\r\nabc",
        "UNAVAILABLE",
        "in the middle of the answer",
    ),
    "bytes that are no message": (answer(b"\x0a\xff\xff\xff", "application/proto"), "INTERNAL", "cannot be read"),
    "a head without an end": (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, "UNAVAILABLE", "has no end"),
}


@pytest.mark.parametrize("name", STRANGERS)
async def test_what_is_no_server_of_ours(name: str) -> None:
    said, reason, words = STRANGERS[name]
    async with server_that_says(said) as client:
        for call in (client.open, client.sandbox(ID).info):
            with pytest.raises(DsecError, match=words) as failed:
                await call()
            assert failed.value.reason == reason
            assert client.endpoint in str(failed.value) or name == "an older version"
            assert is_infrastructure_error(failed.value) == (reason in ("UNAVAILABLE", "INTERNAL"))


async def test_a_body_that_is_cut_is_never_taken_for_the_whole() -> None:
    for cut in (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnonsense\r\n",
    ):
        async with server_that_says(cut) as client:
            files = client.sandbox(ID).files
            with pytest.raises(ConnectionError):
                await files.read("/x")
            with pytest.raises(ConnectionError):
                async for _ in files.read_stream("/x"):
                    pass


async def test_a_stream_of_nonsense_is_an_error() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/connect+proto\r\ntransfer-encoding: chunked\r\n\r\n"
    for flags, length, payload, reason in (
        (255, 5, b"hello", "INTERNAL"),
        (2, 2, b"no", "INTERNAL"),
        (2, 53, b'{"error":{"code":"permission_denied","message":"hm"}}', "PERMISSION_DENIED"),
        (0, 0x7FFFFFFF, b"x" * 100, "INTERNAL"),
        (0, 3, b"\x0a\xff\xff", "INTERNAL"),
    ):
        body = bytes((flags,)) + length.to_bytes(4, "big") + payload
        async with server_that_says(head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)) as client:
            with pytest.raises(DsecError) as failed:
                await client.sandbox(ID).stream("true").outcome()
            assert failed.value.reason == reason


async def test_a_server_that_never_answers() -> None:
    async with server_that_says(None) as client:
        with pytest.raises(DsecError, match=f"no answer from {client.endpoint} within 0.4 s") as failed:
            await client.sandbox(ID).stop()
        assert (failed.value.reason, failed.value.outcome) == ("DEADLINE_EXCEEDED", "unknown")


async def test_a_wrong_key_and_one_that_is_revoked(platform: Platform, client: DSecClient) -> None:
    async with DSecClient(platform.endpoint, "dsec_wrong_key") as wrong:
        with pytest.raises(UnauthenticatedError, match="DSEC_API_KEY"):
            await wrong.open()
        with pytest.raises(UnauthenticatedError):
            await wrong.run_container(BASE)
    made = await client.keys.create(name="revoked soon")
    async with DSecClient(platform.endpoint, made.secret) as other:
        sandbox = await other.run_container(BASE)
        with pytest.raises(UnauthenticatedError):
            async for _ in sandbox.stream("echo on; sleep 60"):
                await client.keys.revoke(made.key.id)
        with pytest.raises(UnauthenticatedError):
            await sandbox.exec(["true"])
        await client.sandbox(sandbox.id).stop()


WRONG: dict[str, Callable[[Any], Awaitable[object]]] = {
    "argv is str; it must be": lambda s: s.exec("ls"),
    "argument of the command is int": lambda s: s.exec(["echo", 1]),
    "the command is bytes; it must be": lambda s: s.run_shell(b"ls"),
    "the command is bytes; it must be a list": lambda s: s.exec(b"ls"),
    "timeout is nan": lambda s: s.exec(["ls"], timeout=math.nan),
    "timeout is -1": lambda s: s.exec(["ls"], timeout=-1),
    "timeout is inf": lambda s: s.exec(["ls"], timeout=math.inf),
    "timeout is str": lambda s: s.exec(["ls"], timeout="1"),
    "timeout is 1e.*too large": lambda s: s.exec(["ls"], timeout=1e300),
    "timeout is True|timeout is bool": lambda s: s.exec(["ls"], timeout=True),
    "env is list": lambda s: s.exec(["ls"], env=["A=B"]),
    r"env\['A'\] is int": lambda s: s.exec(["ls"], env={"A": 1}),
    "a name in env is int": lambda s: s.exec(["ls"], env={1: "A"}),
    "cwd is bytes": lambda s: s.exec(["ls"], cwd=b"/"),
    "UTF-8 cannot say": lambda s: s.run_shell("echo \udc80"),
    "user is list": lambda s: s.exec(["ls"], user=[]),
    "stdin is int": lambda s: s.exec(["cat"], stdin=5),
    "piece of stdin is int": lambda s: s.exec(["cat"], stdin=[1]),
    "command_id": lambda s: s.exec(["ls"], command_id="no spaces"),
    "output_cap_bytes is -5": lambda s: s.exec(["ls"], output_cap_bytes=-5),
    "content is int|piece of content": lambda s: s.files.write("/tmp/x", 7),
    "path is int": lambda s: s.files.read(7),
    "mode is str": lambda s: s.files.write("/tmp/x", "", mode="0644"),
    "mode is 65536": lambda s: s.files.write("/tmp/x", "", mode=65536),
    "offset is -1": lambda s: s.files.read("/etc/passwd", offset=-1),
    "local_path is int": lambda s: s.files.upload(7, "/x"),
    "by is nan": lambda s: s.extend(math.nan),
    "keep is -1": lambda s: s.stop(keep=-1),
    "rows is -1": lambda s: s.terminal(rows=-1),
    "bool, and its name str": lambda s: s.update_network({"pypi": 1}),
}


@pytest.mark.parametrize("words", WRONG)
async def test_arguments_that_are_wrong(words: str, client: DSecClient, shared: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        await WRONG[words](client.sandbox(shared))


@pytest.mark.parametrize(
    "given",
    [
        {"container_image": None},
        {"container_image": b"base"},
        {"memory_limit_mb": math.nan},
        {"memory_limit_mb": "4G"},
        {"memory_limit_mb": -4},
        {"cpu_cores_limit": 0},
        {"ttl": 0},
        {"ttl_running_stop": math.inf},
        {"toolkits": "one"},
        {"labels": {"a": 1}},
        {"labels": "a=b"},
        {"env": {"A": b"b"}},
        {"network_rules": {"pypi": "yes"}},
        {"network_rules": ["pypi"]},
        {"start_command": StartCommand(argv=[1])},  # type: ignore[list-item]
        {"init_user": 1.5},
    ],
    ids=str,
)
async def test_arguments_of_a_create_that_are_wrong(given: dict[str, Any], client: DSecClient) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(given))):
        await client.run_container(DSecContainerRunArgs(**{"container_image": "base", **given}))


async def test_what_else_is_wrong(client: DSecClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for call in (
        lambda: client.run_container({"container_image": "base"}),  # type: ignore[arg-type]
        lambda: client.run_container(BASE, timeout=0),
        lambda: client.run_container(BASE, create_key="short"),
        lambda: client.projects.create("main/x", Quota(sandboxes=-1)),
        lambda: client.keys.create(ttl=math.nan),
        lambda: client.layers.import_(kind="base", name="x", path=tmp_path, body=b""),
    ):
        with pytest.raises(InvalidArgumentError):
            await call()
    wrongs: list[dict[str, Any]] = [
        {"request_timeout": 0},
        {"request_timeout": math.nan},
        {"max_connections": 1},
        {"endpoint": 5},
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidArgumentError):
            DSecClient(**{"endpoint": "http://127.0.0.1:1", "api_key": "k", **wrong})
    for count, concurrency in ((-1, 1), (1.5, 1), (1, 0)):
        with pytest.raises(InvalidArgumentError):
            async for _ in client.run_containers(BASE, count=count, concurrency=concurrency):  # type: ignore[arg-type]
                pass
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for endpoint in ("ftp://x", "127.0.0.1:80", "http://", "http://[::1", "http://x:99999"):
        with pytest.raises(InvalidArgumentError, match="is not an http"):
            load_settings(endpoint, "k")
    with pytest.raises(InvalidArgumentError, match="API key"):
        load_settings("http://x", "key with spaces")
    with pytest.raises(DsecError, match="no endpoint") as failed:
        DSecClient()
    assert failed.value.reason == "NOT_CONFIGURED"


def test_settings_of_the_file_and_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "dsec").mkdir()
    file = tmp_path / "dsec/config.json"
    file.write_text('{"endpoint": "http://127.0.0.1:7878/", "apiKey": "dsec_file"}')
    assert load_settings().endpoint == "http://127.0.0.1:7878"
    assert "dsec_file" not in repr(load_settings())
    # The file's key is not sent to another address.
    with pytest.raises(DsecError, match="no key for"):
        load_settings("http://elsewhere:1")
    monkeypatch.setenv("DSEC_API_KEY", "dsec_env")
    assert load_settings().api_key == "dsec_env"
    file.write_text("[]")
    monkeypatch.delenv("DSEC_API_KEY")
    with pytest.raises(InvalidArgumentError, match="is not a JSON object"):
        load_settings()


def test_errors_survive_pickling() -> None:
    error = DsecError("SANDBOX_ENDED", "it ended", metadata={"end_reason": "TTL"})
    for one in (error, ConnectionError("gone", True)):
        again = pickle.loads(pickle.dumps(one))
        assert (type(again), str(again), again.__dict__) == (type(one), str(one), one.__dict__)
    assert isinstance(error, NotFoundError)


async def test_what_is_too_long(client: DSecClient, shared: str) -> None:
    sandbox = client.sandbox(shared)
    mib = "x" * (1 << 20)
    for call in (
        lambda: sandbox.exec(["echo", mib * 20]),
        lambda: sandbox.run_shell(":" + mib * 20),
        lambda: sandbox.exec(["true"], env={"A": mib * 20}),
        lambda: sandbox.exec(["true"], command_id="c" * 65),
        lambda: sandbox.session(session_id="s" * 65),
        lambda: sandbox.files.write("/tmp/" + "n" * 5000, ""),
        lambda: sandbox.files.write("/tmp/" + mib, ""),
        lambda: sandbox.files.stat("/tmp/" + mib),
        lambda: client.run_container(DSecContainerRunArgs("base", labels={"a": mib * 20})),
        lambda: client.run_container(DSecContainerRunArgs("n" * 5000)),
        lambda: client.layers.get(mib),
    ):
        with pytest.raises(DsecError) as failed:
            await asyncio.wait_for(call(), 20)
        assert not is_infrastructure_error(failed.value)
        assert len(str(failed.value)) < 2000
