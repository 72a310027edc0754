"""Keeps the first and the last half of what is put in, and counts the middle."""

from __future__ import annotations

from collections import deque

from .results import Collected


class HeadTail:
    def __init__(self, cap_bytes: int) -> None:
        self._half = (cap_bytes + 1) // 2
        self._head: list[bytes] = []
        self._head_bytes = 0
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._dropped = 0

    def push(self, data: bytes, gap: int = 0) -> None:
        """@param gap: bytes that were lost just before these."""
        if gap > 0:
            # What was kept on this side of the gap stays in front of it only as head.
            self._dropped += gap + self._tail_bytes
            self._tail.clear()
            self._tail_bytes = 0
        room = self._half - self._head_bytes
        if room > 0 and self._dropped == 0:
            self._head.append(data[:room])
            self._head_bytes += min(room, len(data))
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._tail_bytes += len(data)
        while self._tail and self._tail_bytes - len(self._tail[0]) >= self._half:
            first = self._tail.popleft()
            self._tail_bytes -= len(first)
            self._dropped += len(first)

    def collected(self) -> Collected:
        dropped = self._dropped
        tail = b"".join(self._tail)
        if len(tail) > self._half:
            dropped += len(tail) - self._half
            tail = tail[len(tail) - self._half :]
        return Collected(b"".join([*self._head, tail]), dropped, self._head_bytes)
