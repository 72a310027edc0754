"""The table of behaviours that every client library shows: e2e/behaviours/README.md. TypeScript runs it too."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from support import ROOT, Platform

import libdsec
import libdsec.sync
from libdsec import DSecClient, DsecError

TABLE = json.loads((ROOT / "e2e/behaviours/table.json").read_text())


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case["name"])
async def test_asynchronous(case: dict[str, Any], client: DSecClient, shared: str) -> None:
    await run_case(case, client, shared)


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case["name"])
async def test_synchronous_inside_a_running_loop(
    case: dict[str, Any], platform: Platform, shared_of_the_twin: str
) -> None:
    with libdsec.sync.DSecClient(platform.endpoint, platform.api_key) as client:
        await run_case(case, client, shared_of_the_twin)


async def run_case(case: dict[str, Any], client: Any, shared: str) -> None:
    sandbox = client.sandbox(shared)
    known = {"client": client, "sandbox": sandbox, "files": sandbox.files}
    known |= {name: getattr(client, name) for name in ("layers", "projects", "keys", "nodes")}
    for step in case["steps"]:
        what = f"{step['on']}.{step['call']}({str(step.get('args', []))[:200]})"
        if "fails" in step:
            with pytest.raises(DsecError) as failed:
                await perform(known, step)
            assert isinstance(failed.value, DsecError._classes[failed.value.code]), what
            expect_given(failed.value, step["fails"], what)
            continue
        given = await perform(known, step)
        if "as" in step:
            known[step["as"]] = given
        if "gives" in step:
            expect_given(given, step["gives"], what)


async def perform(known: dict[str, Any], step: dict[str, Any]) -> Any:
    target = known[step["on"]]
    options = {renamed(name): in_seconds(name, argument(value)) for name, value in step.get("options", {}).items()}
    args = [argument(one) for one in step.get("args", [])]
    name = renamed(step["call"])
    if name == "text":
        return await text_of(target)
    if name == "run_container":
        args = [run_args(args[0])]
    if step["on"] == "projects":
        args = [one if isinstance(one, str) else quota(one) for one in args]
    given = getattr(target, {"import": "import_"}.get(name, name))(*args, **options)
    if hasattr(given, "__await__"):
        given = await given
    if name == "stream":
        return given
    if isinstance(given, AsyncIterator):
        return [one async for one in given]
    return list(given) if isinstance(given, Iterator) else given


def run_args(given: dict[str, Any]) -> libdsec.DSecContainerRunArgs:
    return libdsec.DSecContainerRunArgs(**{renamed(name): in_seconds(name, one) for name, one in given.items()})


def quota(given: dict[str, Any]) -> libdsec.Quota:
    return libdsec.Quota(**{renamed(name): one for name, one in given.items()})


async def text_of(stream: Any) -> dict[str, str]:
    text = {"stdout": "", "stderr": ""}
    if hasattr(stream, "__aiter__"):
        async for chunk in stream:
            text[chunk.stream] += chunk.data.decode()
    else:
        for chunk in stream:
            text[chunk.stream] += chunk.data.decode()
    return text


def renamed(name: str) -> str:
    snake = re.sub(r"(?<=[a-z])[A-Z]", lambda found: f"_{found.group().lower()}", name.removesuffix("Ms"))
    return snake.replace("am_i", "am_i")


def in_seconds(name: str, value: Any) -> Any:
    return value / 1000 if name.endswith("Ms") else value


def argument(value: Any) -> Any:
    if isinstance(value, list):
        return [argument(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "hex" in value:
        return bytes.fromhex(value["hex"])
    if "repeat" in value:
        return value["repeat"] * value["times"]
    return {name: argument(one) for name, one in value.items()}


def expect_given(given: Any, wanted: Any, what: str) -> None:
    if isinstance(wanted, dict) and wanted.get("none"):
        assert given is None, what
    elif isinstance(wanted, dict) and wanted.keys() in ({"text"}, {"hex"}):
        assert given == (wanted["text"].encode() if "text" in wanted else bytes.fromhex(wanted["hex"])), what
    elif isinstance(wanted, list):
        assert len(given) == len(wanted), what
        for i, one in enumerate(wanted):
            expect_given(given[i], one, f"{what} [{i}]")
    elif isinstance(wanted, dict):
        for name, one in wanted.items():
            found = given[name] if isinstance(given, dict) else getattr(given, renamed(name))
            expect_given(found, one, f"{what} .{name}")
    else:
        assert given == wanted, what
