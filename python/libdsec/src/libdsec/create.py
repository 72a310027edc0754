"""One create, seen through: the same key and the same absolute deadline for every attempt, so there is never a second
one."""

from __future__ import annotations

import asyncio
import dataclasses
import time

from ._http.calls import Calls
from ._http.retry import pause
from ._wire import messages as m
from .command_options import number, text
from .errors import ConnectionError, DsecError, is_interruption, is_reason, with_doubt
from .run_args import DSecContainerRunArgs, create_request, new_create_key

#: Seconds for finding out what came of a create that was given up.
_UNDO = 5.0


async def create_sandbox(
    calls: Calls,
    args: DSecContainerRunArgs,
    *,
    timeout: float,
    create_key: str | None,
    wait_for_quota: bool,
) -> m.Sandbox:
    if number(timeout, "timeout") <= 0:
        raise DsecError("INVALID_LIMIT", f"timeout is {timeout}; it must be above 0")
    request = create_request(args)
    request.create_key = text(create_key, "create_key") or new_create_key()
    pool = await calls.http.pool()
    async with pool.create():
        return await _Create(calls, request, timeout, bool(create_key), wait_for_quota).run()


class _Create:
    def __init__(
        self, calls: Calls, request: m.CreateSandboxRequest, timeout: float, retry: bool, wait_for_quota: bool
    ) -> None:
        self._calls = calls
        self._request = request
        self._wait_for_quota = wait_for_quota
        self._end = time.monotonic() + timeout
        # An attempt that may have arrived makes every later one a retry: the apiserver then asks the edges for the key
        # first. A key of the caller's own may have been used before, here or in another process.
        request.retry = retry
        request.deadline_unix_ms = int((time.time() + timeout) * 1000) + 1

    async def run(self) -> m.Sandbox:
        asked = False
        try:
            attempts = 0
            interrupted_at = 0.0
            while True:
                try:
                    asked = True
                    return await self._attempt()
                except DsecError as error:
                    asked = False
                    # A later attempt of ours was placed before this one: ask what came of it.
                    superseded = is_reason(error, "CREATE_SUPERSEDED")
                    if error.outcome == "unknown" or superseded:
                        self._request.retry = True
                    interrupted = superseded or is_interruption(error)
                    if not interrupted and not self._waits(error):
                        raise self._told(error) from None
                    now = time.monotonic()
                    end = self._end
                    if interrupted:
                        interrupted_at = interrupted_at or now
                    # A wrong address is told at once instead of when the time is over.
                    if isinstance(error, ConnectionError) and not self._calls.http.answered:
                        end = min(end, interrupted_at + self._calls.retry_within)
                    attempts = attempts if interrupted else max(attempts, 3)
                    wait = pause(attempts, error.retry_after)
                    attempts += 1
                    if now + wait >= end:
                        raise self._told(error) from None
                await asyncio.sleep(wait)
        except asyncio.CancelledError:
            # The caller has left: what was made meanwhile is stopped.
            if asked or self._request.retry:
                await self._calls.later(self._undo)
            raise

    async def _attempt(self) -> m.Sandbox:
        # A little longer than the server's own limit, so that its answer (which knows more) comes first.
        limit = max(0.001, self._end - time.monotonic()) + 2
        reply = await self._calls.call(m.CREATE_SANDBOX, self._request, once=True, timeout=limit)
        if reply.sandbox is None:
            raise DsecError("INTERNAL", "the answer to a create holds no sandbox")
        return reply.sandbox

    def _waits(self, error: DsecError) -> bool:
        return is_reason(error, "CAPACITY_FULL") or (self._wait_for_quota and is_reason(error, "QUOTA_EXCEEDED"))

    def _told(self, error: DsecError) -> DsecError:
        """After an attempt without an answer only the platform's own word that nothing was made ends the doubt."""
        if not self._request.retry or error.outcome == "unknown" or not is_interruption(error):
            return error
        return with_doubt(error)

    async def _undo(self) -> None:
        """Asks with the key, so that nothing new outlives the question."""
        deadline = int((time.time() + _UNDO) * 1000)
        request = dataclasses.replace(self._request, deadline_unix_ms=deadline, retry=True)
        reply = await self._calls.call(m.CREATE_SANDBOX, request, once=True, timeout=_UNDO)
        if reply.sandbox is not None:
            stopped = reply.sandbox.sandbox_id
            await self._calls.call(m.STOP_SANDBOX, m.StopSandboxRequest(stopped), sandbox_id=stopped, timeout=_UNDO)
