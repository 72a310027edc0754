"""Writes src/libdsec/sync.py from the asynchronous classes: `python3 tools/make_sync.py`. Its result is committed.

Each public method becomes one of the same name, arguments and docstring that runs the asynchronous one in the portal's
loop. `--check` says whether the file is as it would be made.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "libdsec"
#: File → classes, in the order in which they are written.
CLASSES = {
    "output_stream.py": ["CommandStream"],
    "command.py": ["Command"],
    "session.py": ["Session"],
    "terminal.py": ["Terminal"],
    "files.py": ["Files"],
    "sandbox.py": ["Sandbox"],
    "create_many.py": [],
    "layers.py": ["Layers"],
    "iam.py": ["Projects", "Keys"],
    "nodes.py": ["Nodes"],
    "client.py": ["DSecClient"],
}
WRAPPED = {name for names in CLASSES.values() for name in names} | {"CreateManyResult"}
#: Attributes that are made in __init__ and shown.
ATTRIBUTES = {
    "CommandStream": {"command_id": "str"},
    "Command": {"id": "str", "sandbox_id": "str"},
    "Session": {"id": "str", "sandbox_id": "str"},
    "Terminal": {"command_id": "str"},
    "Sandbox": {"id": "str", "files": "Files", "notices": "list[Notice]"},
    "DSecClient": {"endpoint": "str", "layers": "Layers", "projects": "Projects", "keys": "Keys", "nodes": "Nodes"},
}
#: What the loop must not see from outside.
LEFT_OUT = {"run_containers_", "close_now", "feed_in_background"}
LEFT_OUT_OF = {"Terminal": {"run"}}

HEADER = '''"""The synchronous twin: the same classes and calls without `await`.

    from libdsec import DSecContainerRunArgs
    from libdsec.sync import DSecClient

Works in scripts, in threads and inside a running loop (a notebook). Functions given as `on_stdout` are called in a
thread of the library's.
"""

# Made by tools/make_sync.py; do not edit.

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import cast

'''

RESULT = '''
@dataclass(frozen=True)
class CreateManyResult:
    """One for each that was asked: a sandbox, or why there is none."""

    index: int
    sandbox: Sandbox | None
    error: DsecError | None


def _create_many_result(one: _async.CreateManyResult) -> CreateManyResult:
    return CreateManyResult(one.index, None if one.sandbox is None else Sandbox(one.sandbox), one.error)
'''


def main() -> int:
    text = HEADER + "".join(imports()) + "".join(parts())
    text = format_with_ruff(text)
    target = SOURCE / "sync.py"
    if "--check" in sys.argv:
        if target.read_text() == text:
            return 0
        print("sync.py is not as the asynchronous classes would make it; run python3 tools/make_sync.py")
        return 1
    target.write_text(text)
    return 0


def format_with_ruff(text: str) -> str:
    import subprocess

    config = SOURCE.parent.parent / "pyproject.toml"
    base = [sys.executable, "-m", "ruff"]
    common = ["--no-cache", "--config", str(config), "--stdin-filename", str(SOURCE / "sync.py"), "-"]
    for step in (["check", "--quiet", "--fix-only", "--select", "I,F401"], ["format", "--quiet"]):
        text = subprocess.run([*base, *step, *common], input=text, text=True, capture_output=True, check=True).stdout
    return text


def imports() -> list[str]:
    """Every module's types; what is not used is taken out again."""
    named: dict[str, set[str]] = {}
    for file in CLASSES:
        for node in ast.walk(ast.parse((SOURCE / file).read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module and not node.module.startswith("_"):
                named.setdefault(node.module, set()).update(alias.name for alias in node.names)
    named["files"] = {"FileEvent", "FileInfo", "LocalPath", "RemotePath"}
    named["sandbox"] = set()
    named["output_stream"] = {"OutputChunk"}
    named["layers"] = {"Layer"}
    named["iam"] = {"Key", "NewKey", "Project", "Quota"}
    named["nodes"] = {"NodeInfo"}
    named["client"] = {"Traffic"}
    lines = ["import libdsec as _async\n", "from . import _portal\n"]
    for module, names in sorted(named.items()):
        kept = sorted(names - WRAPPED - {"files_transfer", "OutputCallback"})
        if kept:
            lines.append(f"from .{module} import {', '.join(kept)}\n")
    return lines


def parts() -> list[str]:
    out = []
    for file, names in CLASSES.items():
        if file == "create_many.py":
            out.append(RESULT)
        tree = ast.parse((SOURCE / file).read_text())
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name in names:
                out.append(class_of(node))
    return out


def class_of(node: ast.ClassDef) -> str:
    name = node.name
    lines = [f"\n\nclass {name}:"]
    doc = ast.get_docstring(node)
    if doc:
        lines.append(indented(f'"""{synchronous(doc)}' + ("\n" if "\n" in doc else "") + '"""', 4) + "\n")
    if name != "DSecClient":
        lines.append(f"    def __init__(self, inner: _async.{name}) -> None:\n        self._inner = inner\n")
    for attribute, kind in ATTRIBUTES.get(name, {}).items():
        value = f"self._inner.{attribute}"
        lines.append(
            f"    @property\n    def {attribute}(self) -> {kind}:\n        return {kind}({value})\n"
            if kind in WRAPPED
            else f"    @property\n    def {attribute}(self) -> {kind}:\n        return {value}\n"
        )
    for item in node.body:
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            made = method_of(name, item)
            if made:
                lines.append(made)
    return "\n".join(lines)


def method_of(owner: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    name = node.name
    if name in LEFT_OUT or name in LEFT_OUT_OF.get(owner, ()) or (name.startswith("_") and not name.startswith("__")):
        return ""
    if name == "__init__" and owner != "DSecClient":
        return ""
    if name == "__repr__":
        return "    def __repr__(self) -> str:\n        return repr(self._inner)\n"
    if name == "__aenter__":
        return f"    def __enter__(self) -> {owner}:\n        return self\n"
    doc = ast.get_docstring(node)
    shown = "" if not doc else indented(f'"""{synchronous(doc)}' + ("\n" if "\n" in doc else "") + '"""', 8) + "\n"
    if name == "__aexit__":
        return (
            "    def __exit__(\n        self, kind: type[BaseException] | None, error: BaseException | None, "
            "trace: TracebackType | None\n    ) -> None:\n"
            f"{shown}        _portal.run(self._inner.__aexit__(kind, error, trace))\n"
        )
    if name == "__aiter__":
        item = ast.unparse(node.returns or node).split("[")[1].split(",")[0].rstrip("]")
        body = "return _portal.iterate(self._inner.__aiter__)"
        return f"    def __iter__(self) -> Iterator[{item}]:\n{shown}        {body}\n"
    signature = synchronous_types(ast.unparse(node.args))
    returned = "None" if node.returns is None else ast.unparse(node.returns)
    arguments = call_arguments(node.args)
    if name == "__init__":
        return f"    def __init__({signature}) -> None:\n{shown}        self._inner = _async.DSecClient({arguments})\n"
    if any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list):
        return f"    @property\n    def {name}(self) -> {returned}:\n{shown}        return self._inner.{name}\n"
    call = f"self._inner.{name}({arguments})"
    generated = re.match(r"Async(?:Generator|Iterator)\[(.*?)(?:, None)?\]$", returned)
    if generated:
        item = generated.group(1)
        source = f"_portal.iterate(lambda: {call})"
        body = f"return map(_create_many_result, {source})" if item == "CreateManyResult" else f"return {source}"
        return f"    def {name}({signature}) -> Iterator[{item}]:\n{shown}        {body}\n"
    if isinstance(node, ast.AsyncFunctionDef):
        call = f"_portal.run({call})"
    if returned == owner and name == "open":
        body = f"{call}\n        return self"
    elif returned in WRAPPED:
        body = f"return {returned}({call})"
    elif returned == "None":
        body = call
    else:
        body = f"return {call}"
    return f"    def {name}({signature}) -> {returned}:\n{shown}        {body}\n"


def call_arguments(args: ast.arguments) -> str:
    given = [one.arg for one in args.posonlyargs + args.args if one.arg != "self"]
    given += [f"{one.arg}={value_of(one)}" for one in args.kwonlyargs]
    return ", ".join(given)


def value_of(argument: ast.arg) -> str:
    return f"_portal.callback({argument.arg})" if argument.arg in ("on_stdout", "on_stderr") else argument.arg


def synchronous_types(text: str) -> str:
    return text.replace("OutputCallback", "Callable[[bytes], object]")


def synchronous(doc: str) -> str:
    """Docstrings speak of tasks and `await` in a few places."""
    return (
        doc.replace("\\", "\\\\")
        .replace("async with await ", "with ")
        .replace("async with ", "with ")
        .replace("(await ", "(")
        .replace("async for ", "for ")
        .replace("await ", "")
        .replace("Cancelling the task", "An interrupt (Ctrl-C)")
        .replace("(with\n`contextlib.aclosing`, or when the iterator is collected)", "or\nclosing the iterator")
        .replace("an (async) iterable", "an iterable")
        .replace("`async with`", "`with`")
    )


def indented(text: str, spaces: int) -> str:
    return "\n".join(" " * spaces + line if line else "" for line in text.split("\n"))


if __name__ == "__main__":
    sys.exit(main())
