"""A shell session: directory, variables and functions last from call to call."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from ._http.calls import Calls
from ._wire import messages as m
from .command import OutputCallback, run_command
from .command_options import InputSource, prepare, text
from .errors import is_reason
from .results import CommandResult


class Session:
    """Made by `Sandbox.session`. One call at a time."""

    def __init__(self, calls: Calls, sandbox_id: str, id: str) -> None:
        self.id = id
        self.sandbox_id = sandbox_id
        self._calls = calls

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        stdin: InputSource | None = None,
        timeout: float | None = None,
        output_cap_bytes: int | None = None,
        command_id: str | None = None,
        kill_on_cancel: bool = False,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
    ) -> CommandResult:
        """Runs shell text in the session's shell; arguments as of `Sandbox.exec`.

        Raises:
            DsecError: SESSION_BUSY while another call runs in it; SESSION_NOT_FOUND.
        """
        prepared = prepare(
            text(command, "the command"),
            cwd=cwd,
            env=env,
            secret_env=secret_env,
            stdin=stdin,
            timeout=timeout,
            output_cap_bytes=output_cap_bytes,
            command_id=command_id,
            session_id=self.id,
        )
        return await run_command(
            self._calls,
            self.sandbox_id,
            prepared,
            kill_on_cancel=kill_on_cancel,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
        )

    async def close(self) -> None:
        """Ends every process that the session started."""
        request = m.CloseSessionRequest(self.sandbox_id, self.id)
        await self._calls.call(m.CLOSE_SESSION, request, sandbox_id=self.sandbox_id)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it; one that is gone already is no error."""
        try:
            await self.close()
        except Exception as closing:
            if error is None and not is_reason(
                closing, "SESSION_NOT_FOUND", "SANDBOX_ENDED", "SANDBOX_NOT_FOUND", "SANDBOX_STOPPED"
            ):
                raise
