"""What may be said about a command, and its form on the wire."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import NamedTuple, Union

from ._wire import messages as m
from .errors import DsecError

#: Text is sent as UTF-8; an iterable in pieces as the command takes them.
InputSource = Union[str, bytes, bytearray, memoryview, AsyncIterable[Union[bytes, str]], Iterable[Union[bytes, str]]]
#: A program with its arguments, or text for a shell.
CommandLine = Union[str, Sequence[Union[str, bytes]]]

#: Standard input up to this many bytes travels with the start.
_INLINE_INPUT = 1 << 20
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


class PtySize(NamedTuple):
    """Size of a terminal in characters."""

    rows: int = 24
    cols: int = 80


class Prepared(NamedTuple):
    command_id: str
    spec: m.CommandSpec
    #: Input that is too large for the start, or comes piece by piece.
    feed: InputSource | None


def prepare(
    line: CommandLine,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    secret_env: Mapping[str, str] | None = None,
    user: str | int | None = None,
    stdin: InputSource | None = None,
    stdin_open: bool = False,
    timeout: float | None = None,
    pty: PtySize | tuple[int, int] | bool = False,
    output_cap_bytes: int | None = None,
    command_id: str | None = None,
    session_id: str = "",
) -> Prepared:
    """@raises DsecError: INVALID_ARGUMENT for what the wire cannot say."""
    inline = to_bytes(stdin, "stdin") if isinstance(stdin, (str, bytes, bytearray, memoryview)) else None
    whole = inline is not None and len(inline) <= _INLINE_INPUT
    feed = None if whole else (inline if inline is not None else stdin)
    if (
        feed is not None
        and not isinstance(feed, bytes)
        and not hasattr(feed, "__aiter__")
        and not hasattr(feed, "__iter__")
    ):
        raise wrong_type("stdin", feed, "str, bytes or an iterable of them")
    spec = m.CommandSpec(
        cwd=text(cwd, "cwd"),
        env=strings(env, "env"),
        secret_env=strings(secret_env, "secret_env"),
        user=user_of(user),
        stdin=inline if whole and inline is not None else b"",
        stdin_open=bool(stdin_open) or feed is not None,
        timeout_ms=milliseconds(timeout, "timeout"),
        session_id=session_id,
        output_cap_bytes=whole_number(output_cap_bytes, "output_cap_bytes"),
    )
    if isinstance(line, str):
        spec.shell = text(line, "the command")
    elif isinstance(line, (bytes, bytearray)) or not isinstance(line, Sequence):
        raise wrong_type("the command", line, "a list of str or bytes, or shell text as str")
    else:
        spec.argv = m.ArgumentVector([to_bytes(part, "an argument of the command") for part in line])
    if pty:
        rows, cols = pty if isinstance(pty, tuple) else PtySize()
        spec.pty = m.PtySize(whole_number(rows, "rows"), whole_number(cols, "cols"))
    return Prepared(text(command_id, "command_id") or f"c{random_id(20)}", spec, feed)


def text(value: str | None, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise wrong_type(name, value, "str")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DsecError(
            "INVALID_ARGUMENT", f"{name} holds characters that UTF-8 cannot say; give bytes where a name is none"
        ) from None
    return value


def user_of(value: str | int | None, name: str = "user") -> str:
    """Name or number; the number may be an int."""
    if isinstance(value, bool):
        raise wrong_type(name, value, "str or int")
    return str(value) if isinstance(value, int) else text(value, name)


def to_bytes(value: object, name: str) -> bytes:
    """UTF-8 of a str; names of files that are no UTF-8 come from Python with surrogates and go back as their bytes."""
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise DsecError("INVALID_ARGUMENT", f"{name} holds characters that UTF-8 cannot say") from None
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, os.PathLike):
        return os.fsencode(value)
    raise wrong_type(name, value, "str or bytes")


def strings(value: Mapping[str, str] | None, name: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong_type(name, value, "a dict of str to str")
    for key, one in value.items():
        if not isinstance(key, str):
            raise wrong_type(f"a name in {name}", key, "str")
        if not isinstance(one, str):
            raise wrong_type(f"{name}[{key!r}]", one, "str")
        text(key, f"a name in {name}")
        text(one, f"{name}[{key!r}]")
    return dict(value)


def number(value: float | None, name: str) -> float:
    """@raises DsecError: INVALID_ARGUMENT for what is negative, no number, or infinite."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong_type(name, value, "a number")
    if not math.isfinite(value) or value < 0:
        raise DsecError("INVALID_ARGUMENT", f"{name} is {value}; it must be a number of at least 0")
    return value


def whole_number(value: float | None, name: str) -> int:
    made = math.ceil(number(value, name))
    if made >= 1 << 63:
        raise DsecError("INVALID_ARGUMENT", f"{name} is {value}; that is too large")
    return made


def milliseconds(seconds: float | None, name: str) -> int:
    return whole_number(None if seconds is None else number(seconds, name) * 1000, name)


def wrong_type(name: str, value: object, wanted: str) -> DsecError:
    return DsecError("INVALID_ARGUMENT", f"{name} is {type(value).__name__}; it must be {wanted}")


def random_id(length: int) -> str:
    """Random lower-case base32 characters, 5 bits each."""
    return "".join(_LETTERS[byte & 31] for byte in os.urandom(length))
