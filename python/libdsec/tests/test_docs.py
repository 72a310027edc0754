"""Every example: of the docstrings, of docs/python.md, of the README; and the paper's smallest session as it stands."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import importlib
import inspect
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import BASE
from support import ROOT, Platform

import libdsec.sync
from libdsec import DSecClient

MODULES = ("client", "sandbox", "files", "errors", "sync")


def examples() -> list[Any]:
    found = []
    for name in MODULES:
        module = importlib.import_module(f"libdsec.{name}")
        for test in doctest.DocTestFinder().find(module, module.__name__):
            if test.examples:
                found.append(pytest.param(name == "sync", test, id=test.name))
    return found


@pytest.mark.parametrize(("synchronous", "test"), examples())
async def test_docstrings(
    synchronous: bool, test: doctest.DocTest, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSEC_ENDPOINT", platform.endpoint)
    monkeypatch.setenv("DSEC_API_KEY", platform.api_key)
    async with DSecClient() as client, await client.run_container(BASE) as sandbox:
        names: dict[str, Any] = {**vars(libdsec), "client": client, "sandbox": sandbox}
        if synchronous:
            twin = libdsec.sync.DSecClient()
            names |= {**vars(libdsec.sync), "client": twin, "sandbox": twin.sandbox(sandbox.id)}
            names["DSecContainerRunArgs"] = libdsec.DSecContainerRunArgs
        for example in test.examples:
            assert await shown(example.source, names) == example.want


async def shown(source: str, names: dict[str, Any]) -> str:
    """What a prompt that awaits would print."""
    code = compile(source, "<example>", "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        running = eval(code, names)
        if inspect.isawaitable(running):
            await running
    return out.getvalue()


def blocks(file: Path) -> list[str]:
    return re.findall(r"^```py(?:thon)?\n(.*?)^```", file.read_text(), re.M | re.S)


@pytest.mark.parametrize("number", range(len(blocks(ROOT / "docs/python.md"))))
async def test_blocks_of_the_page(
    number: int, platform: Platform, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DSEC_ENDPOINT", platform.endpoint)
    monkeypatch.setenv("DSEC_API_KEY", platform.api_key)
    monkeypatch.chdir(tmp_path)
    block = blocks(ROOT / "docs/python.md")[number]
    async with DSecClient() as client, await client.run_container(BASE) as sandbox:
        names = {**vars(libdsec), "asyncio": asyncio, "client": client, "sandbox": sandbox, "args": BASE}
        code = compile(block.replace('"debian"', '"base"'), f"block {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        running = eval(code, names)
        if inspect.isawaitable(running):
            await running


PAPER = """
import asyncio
from libdsec import DSecClient, DSecContainerRunArgs

async def main():
    client = DSecClient(); await client.open()
    args = DSecContainerRunArgs(container_image="base", memory_limit_mb=4096, cpu_cores_limit=4,
                                ttl_running_stop=300, network_rules={"npm": False, "pypi": True}, init_user="root")
    sandbox = await client.run_container(args, timeout=120)
    result = await sandbox.run_shell("echo hello world")
    await sandbox.stop()
    print(result.exit_code, result.stdout, end="")

asyncio.run(main())
"""


def test_the_papers_smallest_session(platform: Platform) -> None:
    done = subprocess.run([sys.executable, "-c", PAPER], env=platform.env(), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 hello world\n", "")


def test_a_wheel_is_built_and_holds_the_types(tmp_path: Path) -> None:
    """Without build isolation: nothing is fetched."""
    source = tmp_path / "source"
    subprocess.run(["cp", "-r", ROOT / "python/libdsec", source], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    command = [
        *pip,
        "install",
        "--no-build-isolation",
        "--no-index",
        "--target",
        str(tmp_path / "installed"),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    program = "import libdsec, libdsec.sync; print(libdsec.__file__, libdsec.DSecClient, libdsec.DSecContainerRunArgs)"
    told = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'installed')!r}); {program}"],
        capture_output=True,
        text=True,
    )
    assert told.stdout.startswith(str(tmp_path / "installed/libdsec/__init__.py"))
    assert (tmp_path / "installed/libdsec/py.typed").exists()
    metadata = next((tmp_path / "installed").glob("*.dist-info/METADATA")).read_text()
    assert "Requires-Dist" not in metadata
    assert "Requires-Python: >=3.10" in metadata
