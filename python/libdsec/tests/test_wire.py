"""Parts by themselves: messages, frames, output that is cut, what is kept of long output."""

from __future__ import annotations

import random

import pytest
from support import ROOT

from libdsec._http.stream_parser import Ended, Event, Output, Started, StreamParser
from libdsec._wire import messages as m
from libdsec._wire.codec import Message, WireError, decode, from_json
from libdsec.head_tail import HeadTail


@pytest.mark.parametrize(
    "message",
    [
        m.ExecRequest(
            "s", "c", m.CommandSpec(shell="é", env={"A": "b", "": ""}, timeout_ms=1 << 62, pty=m.PtySize(1, 2))
        ),
        m.CommandSpec(argv=m.ArgumentVector([b"\xff", b"", b"x" * 300])),
        m.ListSandboxesRequest(states=[0, 1, 300], recursive=True),
        m.NetworkRules({"pypi": True, "npm": False}),
        m.CommandOutcome(exit_code=0, cpu_time_ms=0.0),
        m.CommandOutcome(exit_code=-1, duration_ms=1.5e-7),
        m.FileInfo(b"\xff", 1, (1 << 64) - 1, 0o7777, 1, 2, -5),
        m.Quota(),
        m.ListNodesResponse([m.NodeStatus("a"), m.NodeStatus("b", True)]),
    ],
    ids=lambda message: type(message).__name__,
)
def test_messages_come_back_as_they_were(message: Message) -> None:
    assert decode(type(message), message.encode()) == message
    # A field of a newer server is passed over: number 500, of each wire type.
    for tag in (b"\xa0\x1f\x05", b"\xa1\x1f" + b"x" * 8, b"\xa2\x1f\x03abc", b"\xa5\x1fabcd"):
        assert decode(type(message), tag + message.encode() + tag) == message


def test_absent_and_zero_are_told_apart_where_that_matters() -> None:
    assert m.CommandOutcome(exit_code=0).encode() == b"\x08\x00"
    assert m.CommandOutcome().encode() == b""
    assert decode(m.CommandOutcome, b"").exit_code is None


def test_damaged_messages_are_errors() -> None:
    whole = m.ExecResponse(m.CommandResult("c", m.CommandOutcome(0), m.CollectedOutput(b"out"))).encode()
    for cut in range(1, len(whole)):
        with pytest.raises(WireError):
            decode(m.ExecResponse, whole[:cut])
    for damaged in (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x08\x01", b"\x0f", b"\x0a"):
        with pytest.raises(WireError):
            decode(m.ExecResponse, damaged)
    random.seed(7)
    for _ in range(2000):
        noise = random.randbytes(random.randrange(60))
        try:
            decode(m.CreateSandboxResponse, noise)
        except WireError:
            pass


def test_secrets_are_not_in_an_error() -> None:
    with pytest.raises(WireError) as failed:
        m.CommandSpec(secret_env={"A": 5, "B": "hush"}).encode()  # type: ignore[dict-item]
    assert "hush" not in str(failed.value)


def test_json_of_plain_bodies_and_terminals() -> None:
    told = {"exitCode": 3, "stdoutBytes": "12", "limitHit": ["LIMIT_HIT_MEMORY"], "unknown": 1, "durationMs": 2}
    assert from_json(m.CommandOutcome, told) == m.CommandOutcome(3, stdout_bytes=12, limit_hit=[1], duration_ms=2.0)
    wrongs: list[object] = [[], {"exitCode": "x"}, {"limitHit": 5}]
    for wrong in wrongs:
        with pytest.raises(WireError):
            from_json(m.CommandOutcome, wrong)


def frame(payload: bytes, flags: int = 0) -> bytes:
    return bytes((flags,)) + len(payload).to_bytes(4, "big") + payload


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000, 1 << 20])
def test_a_stream_is_the_same_however_it_is_cut(size: int) -> None:
    large = bytes(range(256)) * 700
    body = frame(m.StreamResponse(started=m.CommandInfo("c", 1)).encode())
    for offset, data in ((0, b"hello"), (5, large), (5 + len(large), b"")):
        body += frame(m.StreamResponse(output=m.OutputChunk(1, offset, 0, data)).encode())
    body += frame(m.StreamResponse(output=m.OutputChunk(2, 1 << 40, 1 << 40, b"err")).encode())
    body += frame(m.StreamResponse(ended=m.CommandOutcome(4)).encode()) + frame(b"{}", 2)
    parser = StreamParser()
    events: list[Event] = []
    for at in range(0, len(body), size):
        events += parser.push(body[at : at + size])
    assert parser.finished
    assert parser.error is None
    assert [event for event in events if isinstance(event, (Started, Ended))] == [
        Started(m.CommandInfo("c", 1)),
        Ended(m.CommandOutcome(4)),
    ]
    output = [event for event in events if isinstance(event, Output)]
    assert b"".join(event.data for event in output if event.stream == "stdout") == b"hello" + large
    at = 0
    for event in output:
        if event.stream == "stdout":
            assert (event.offset, event.dropped_bytes) == (at, 0)
            at += len(event.data)
    errors = [event for event in output if event.stream == "stderr"]
    assert b"".join(event.data for event in errors) == b"err"
    assert (errors[0].offset, errors[0].dropped_bytes) == (1 << 40, 1 << 40)


def test_head_and_tail_of_long_output() -> None:
    text = bytes(range(250)) * 5
    for step in (1, 3, 100, len(text)):
        kept = HeadTail(100)
        for at in range(0, len(text), step):
            kept.push(text[at : at + step])
        data, dropped, gap_at = kept.collected()
        assert (data, dropped, gap_at) == (text[:50] + text[-50:], len(text) - 100, 50)
    kept = HeadTail(100)
    kept.push(b"head")
    kept.push(b"tail", gap=1000)
    assert kept.collected() == (b"headtail", 1000, 4)


def test_the_protocol_is_the_one_of_the_repository() -> None:
    """Every call that proto/ offers to clients is here."""
    services = ("sandbox", "command", "session", "file", "layer", "iam")
    text = "".join((ROOT / f"proto/dsec/v1/{name}.proto").read_text() for name in services)
    offered = {line.split("rpc ")[1].split("(")[0] for line in text.splitlines() if line.strip().startswith("rpc ")}
    paths = {
        value.path.rsplit("/", 1)[1] for name, value in vars(m).items() if name.isupper() and hasattr(value, "path")
    }
    assert offered <= paths
