"""Protocol buffers, as much of them as the platform's messages use: binary both ways, JSON read only.

A dependency on Google's runtime would clash with what trainers install; the wire is small and its
numbers never change.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

_U64 = (1 << 64) - 1
_DOUBLE = struct.Struct("<d")
_WIRE_TYPES = {"string": 2, "bytes": 2, "message": 2, "bool": 0, "uint": 0, "int": 0, "enum": 0, "double": 1}
_PACKED = {"bool", "uint", "int", "enum", "double"}


class WireError(ValueError):
    """Bytes that are no such message."""


class Field(NamedTuple):
    number: int
    name: str
    json_name: str
    #: "single", "optional", "list" or "map"; keys of maps are strings.
    shape: str
    kind: str
    message: type[Message] | None = None
    names: dict[int, str] | None = None
    prefix: str = ""


class Message:
    """A message; its fields are the attributes."""

    __slots__ = ()

    def encode(self) -> bytes:
        out = bytearray()
        _write(self, out)
        return bytes(out)


M = TypeVar("M", bound=Message)
I = TypeVar("I", bound=Message)  # noqa: E741
O = TypeVar("O", bound=Message)  # noqa: E741


@dataclass(frozen=True)
class Method(Generic[I, O]):
    """A call: its path, what is sent and what comes back."""

    path: str
    input: type[I]
    output: type[O]


_Writer = Callable[[Any, bytearray], None]
_Reader = Callable[[bytes, int, int], tuple[Any, int]]


class _Table(NamedTuple):
    #: (name, default that is not sent, shape, tag, tag of a packed list, how a value is written)
    writers: list[tuple[str, Any, str, bytes, bytes, _Writer]]
    #: number → (name, shape, wire type, how a value is read)
    readers: dict[int, tuple[str, str, int, _Reader]]
    json: dict[str, Field]


_tables: dict[type[Message], _Table] = {}


def define(message: type[Message], *fields: Field) -> None:
    """Enters a message's fields; called once for each by the generated module."""
    table = _Table([], {}, {})
    _tables[message] = table
    for each in fields:
        wire_type = _WIRE_TYPES[each.kind]
        default: Any = None if each.shape == "optional" or each.kind == "message" else _default(each.kind)
        tag = _varint(each.number << 3 | (2 if each.shape == "map" else wire_type))
        packed = _varint(each.number << 3 | 2) if each.kind in _PACKED and each.shape == "list" else b""
        table.writers.append((each.name, default, each.shape, tag, packed, _writer(each)))
        table.readers[each.number] = (each.name, each.shape, wire_type, _reader(each))
        table.json[each.json_name] = table.json[each.name] = each


def decode(message: type[M], data: bytes) -> M:
    """@raises WireError: for bytes that are no such message."""
    try:
        return _read(message, data, 0, len(data))
    except WireError:
        raise
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise WireError(f"not a {message.__name__}: {error}") from error


# --- writing


def _varint(value: int) -> bytes:
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _default(kind: str) -> Any:
    return {"string": "", "bytes": b"", "bool": False, "double": 0.0}.get(kind, 0)


def _writer(each: Field) -> _Writer:
    kind = each.kind

    def text(value: str, out: bytearray) -> None:
        data = value.encode()
        out += _varint(len(data))
        out += data

    def octets(value: bytes, out: bytearray) -> None:
        out += _varint(len(value))
        out += value

    def nested(value: Message, out: bytearray) -> None:
        inner = bytearray()
        _write(value, inner)
        out += _varint(len(inner))
        out += inner

    def number(value: int, out: bytearray) -> None:
        out += _varint(value & _U64)

    def double(value: float, out: bytearray) -> None:
        out += _DOUBLE.pack(value)

    if kind == "string":
        return text
    if kind == "bytes":
        return octets
    if kind == "message":
        return nested
    return double if kind == "double" else number


def _write(message: Message, out: bytearray) -> None:
    name = ""
    try:
        for name, default, shape, tag, packed, write in _tables[type(message)].writers:
            _write_field(getattr(message, name), default, shape, tag, packed, write, out)
    except (AttributeError, TypeError, UnicodeEncodeError) as error:
        # The value itself may be a secret.
        raise WireError(f"{name} cannot be sent as it is: {error}") from error


def _write_field(
    value: Any, default: Any, shape: str, tag: bytes, packed: bytes, write: _Writer, out: bytearray
) -> None:
    if shape == "map":
        _write_map(value, tag, write, out)
    elif shape == "list":
        if packed and value:
            inner = bytearray()
            for one in value:
                write(one, inner)
            out += packed + _varint(len(inner)) + inner
        elif not packed:
            for one in value:
                out += tag
                write(one, out)
    elif value != default:
        out += tag
        write(value, out)


def _write_map(value: dict[str, Any], tag: bytes, write: _Writer, out: bytearray) -> None:
    for key, one in value.items():
        data = key.encode()
        inner = bytearray(b"\x0a")
        inner += _varint(len(data)) + data
        inner += b"\x10" if isinstance(one, bool) else b"\x12"
        write(one, inner)
        out += tag + _varint(len(inner)) + inner


# --- reading


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    at += 1
    if value < 128:
        return value, at
    value &= 127
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & _U64, at
        shift += 7
        if shift > 63:
            raise WireError("a number of more than 64 bits")


def _reader(each: Field) -> _Reader:
    """How one value is read: of what has a length, `at` and `end` are its borders."""
    kind, message = each.kind, each.message

    def text(data: bytes, at: int, end: int) -> tuple[Any, int]:
        return data[at:end].decode("utf-8", "replace"), end

    def octets(data: bytes, at: int, end: int) -> tuple[Any, int]:
        return data[at:end], end

    def nested(data: bytes, at: int, end: int) -> tuple[Any, int]:
        assert message is not None
        return _read(message, data, at, end), end

    def boolean(data: bytes, at: int, end: int) -> tuple[Any, int]:
        value, at = _read_varint(data, at)
        return value != 0, at

    def unsigned(data: bytes, at: int, end: int) -> tuple[Any, int]:
        return _read_varint(data, at)

    def signed(data: bytes, at: int, end: int) -> tuple[Any, int]:
        value, at = _read_varint(data, at)
        return (value - (1 << 64) if value >> 63 else value), at

    def double(data: bytes, at: int, end: int) -> tuple[Any, int]:
        return _DOUBLE.unpack_from(data, at)[0], at + 8

    readers: dict[str, _Reader] = {
        "string": text,
        "bytes": octets,
        "message": nested,
        "bool": boolean,
        "uint": unsigned,
        "enum": unsigned,
        "int": signed,
        "double": double,
    }
    return readers[kind]


def _read(message: type[M], data: bytes, at: int, end: int) -> M:
    made = message()
    readers = _tables[message].readers
    while at < end:
        tag, at = _read_varint(data, at)
        wire_type = tag & 7
        stop = at
        if wire_type == 2:
            length, at = _read_varint(data, at)
            stop = at + length
            if stop > end:
                raise WireError("a field is longer than its message")
        known = readers.get(tag >> 3)
        if known is None:
            at = _skip(data, at, stop, wire_type)
            continue
        name, shape, expected, read = known
        if shape == "map":
            key, value, at = *_read_entry(data, at, stop, expected, read), stop
            getattr(made, name)[key] = value
        elif shape == "list":
            values = getattr(made, name)
            if wire_type == 2 and expected != 2:
                while at < stop:
                    value, at = read(data, at, stop)
                    values.append(value)
            else:
                value, at = read(data, at, stop)
                values.append(value)
        elif wire_type != expected:
            raise WireError(f"field {tag >> 3} has the wire type {wire_type}")
        else:
            value, at = read(data, at, stop)
            setattr(made, name, value)
    if at != end:
        raise WireError("a message is longer than it said")
    return made


def _read_entry(data: bytes, at: int, end: int, expected: int, read: _Reader) -> tuple[str, Any]:
    key = ""
    value: Any = "" if expected == 2 else False
    while at < end:
        tag, at = _read_varint(data, at)
        stop = at
        if tag & 7 == 2:
            length, at = _read_varint(data, at)
            stop = at + length
        if tag >> 3 == 1:
            key, at = data[at:stop].decode("utf-8", "replace"), stop
        elif tag >> 3 == 2:
            value, at = read(data, at, stop)
        else:
            at = _skip(data, at, stop, tag & 7)
    return key, value


def _skip(data: bytes, at: int, stop: int, wire_type: int) -> int:
    if wire_type == 2:
        return stop
    if wire_type == 0:
        return _read_varint(data, at)[1]
    if wire_type in (1, 5):
        return at + (8 if wire_type == 1 else 4)
    raise WireError(f"the wire type {wire_type}")


# --- JSON, as protobuf writes it


def from_json(message: type[M], value: Any) -> M:
    """What plain bodies and terminals answer with. Unknown names are left out. @raises WireError"""
    if not isinstance(value, dict):
        raise WireError(f"not a {message.__name__}: no JSON object")
    made = message()
    known = _tables[message].json
    try:
        for name, given in value.items():
            each = known.get(name)
            if each is None or given is None:
                continue
            if each.shape == "list":
                setattr(made, each.name, [_json_value(each, one) for one in given])
            elif each.shape == "map":
                setattr(made, each.name, {key: _json_value(each, one) for key, one in given.items()})
            else:
                setattr(made, each.name, _json_value(each, given))
    except (TypeError, ValueError, AttributeError) as error:
        raise WireError(f"not a {message.__name__}: {error}") from error
    return made


def _json_value(each: Field, value: Any) -> Any:
    if each.kind == "message":
        assert each.message is not None
        return from_json(each.message, value)
    if each.kind == "bytes":
        return base64.b64decode(value)
    if each.kind == "enum" and isinstance(value, str):
        return next((n for n, name in (each.names or {}).items() if each.prefix + name == value), 0)
    if each.kind in ("uint", "int", "enum"):
        return int(value)
    if each.kind == "double":
        return float(value)
    return value
