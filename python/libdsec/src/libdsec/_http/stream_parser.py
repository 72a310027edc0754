"""CommandService.Stream: Connect's 5-byte envelope, then StreamResponse. The bytes of an output chunk are handed on
before the rest of their frame is there: nothing is held back."""

from __future__ import annotations

import json
from typing import NamedTuple, Union

from .._wire import messages as m
from .._wire.codec import WireError, decode
from .._wire.wire_error import error_of_json
from ..errors import DsecError

#: Frames that are not output are small; a longer one is not from a server of ours.
_MAX_SMALL = 1 << 20
_MAX_OUTPUT = 1 << 28
#: Longest beginning of an output frame: envelope, tag, length, then stream, offset, dropped, data's tag and length.
_MAX_PRELUDE = 5 + 1 + 5 + 11 + 11 + 11 + 6


class Started(NamedTuple):
    info: m.CommandInfo


class Output(NamedTuple):
    stream: str
    offset: int
    dropped_bytes: int
    data: bytes


class Ended(NamedTuple):
    outcome: m.CommandOutcome


Event = Union[Started, Output, Ended]


class StreamParser:
    def __init__(self) -> None:
        #: The last frame has come and said that all is well.
        self.finished = False
        #: What came behind the events of the last push: the server's error, or that the bytes are no such stream.
        self.error: DsecError | None = None
        self._held = b""
        self._stream = "stdout"
        self._offset = 0
        self._left = 0

    def push(self, chunk: bytes) -> list[Event]:
        """Events of the next bytes of the body."""
        events: list[Event] = []
        at = self._slice(chunk, 0, 0, events) if self._left > 0 else 0
        if self._held:
            chunk = self._held + chunk[at:]
            self._held = b""
            at = 0
        try:
            while at < len(chunk) and not self.finished:
                following = self._frame(chunk, at, events)
                if following < 0:
                    self._held = chunk[at:]
                    break
                at = following
        except DsecError as error:
            self.error = error
        return events

    def _slice(self, chunk: bytes, at: int, dropped: int, events: list[Event]) -> int:
        end = min(len(chunk), at + self._left)
        if end > at or dropped > 0:
            events.append(Output(self._stream, self._offset, dropped, chunk[at:end]))
        self._offset += end - at
        self._left -= end - at
        return end

    def _frame(self, chunk: bytes, at: int, events: list[Event]) -> int:
        """Takes the frame at `at`; gives where the next begins, or -1 when more bytes are needed."""
        if len(chunk) - at < 5:
            return -1
        flags = chunk[at]
        length = int.from_bytes(chunk[at + 1 : at + 5], "big")
        start = at + 5
        if flags & ~2:
            raise _nonsense(f"frame flags {flags}")
        if flags == 0 and length > 0:
            available = min(len(chunk), start + length)
            if available - at < min(_MAX_PRELUDE, length + 5):
                return -1
            data = self._prelude(chunk, start, start + length, available, events)
            if data >= 0:
                return data
        if length > _MAX_SMALL:
            raise _nonsense(f"a frame of {length} bytes")
        if len(chunk) < start + length:
            return -1
        payload = chunk[start : start + length]
        if flags == 2:
            self._last(payload)
        else:
            self._message(payload, events)
        return start + length

    def _prelude(self, chunk: bytes, start: int, end: int, available: int, events: list[Event]) -> int:
        """An output chunk in the order in which every protobuf writer puts it; -1 where it is something else."""
        if chunk[start] != 0x12 or end - start > _MAX_OUTPUT:
            return -1
        try:
            inner, at = _varint(chunk, start + 1)
            if at + inner != end:
                return -1
            stream = offset = dropped = 0
            while at < available:
                tag = chunk[at]
                value, at = _varint(chunk, at + 1)
                if tag == 0x22:
                    if at + value != end:
                        return -1
                    self._begin(stream, offset, value)
                    return self._slice(chunk, at, dropped, events)
                if tag == 0x08:
                    stream = value
                elif tag == 0x10:
                    offset = value
                elif tag == 0x18:
                    dropped = value
                else:
                    return -1
        except IndexError:
            return -1
        return -1

    def _begin(self, stream: int, offset: int, size: int) -> None:
        self._stream = "stderr" if stream == 2 else "stdout"
        self._offset = offset
        self._left = size

    def _message(self, payload: bytes, events: list[Event]) -> None:
        try:
            message = decode(m.StreamResponse, payload)
        except WireError as error:
            raise _nonsense(str(error)) from error
        if message.started is not None:
            events.append(Started(message.started))
        elif message.ended is not None:
            events.append(Ended(message.ended))
        elif message.output is not None:
            output = message.output
            if output.data or output.dropped_bytes:
                name = "stderr" if output.stream == 2 else "stdout"
                events.append(Output(name, output.offset, output.dropped_bytes, output.data))

    def _last(self, payload: bytes) -> None:
        try:
            value = json.loads(payload or b"{}")
        except ValueError:
            raise _nonsense("a last frame that is no JSON") from None
        if isinstance(value, dict) and value.get("error"):
            raise error_of_json(value["error"], 0)
        self.finished = True


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 63, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise IndexError("a number that is too large")


def _nonsense(what: str) -> DsecError:
    return DsecError("INTERNAL", f"the answer is not one of the Stream method: {what}")
