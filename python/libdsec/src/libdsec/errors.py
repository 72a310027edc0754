"""Errors of the library. Every failure is a `DsecError` with a reason from the platform's one table (docs/errors.md).

A command that ran is never an error, whatever it returned. So a trainer drops a sample that ended with an error and
scores one that ended with a result; `is_infrastructure_error` tells faults of the platform from the caller's own.
"""

from __future__ import annotations

import json
from typing import ClassVar, TypeGuard

from ._wire.error_table import ERROR_TABLE

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "CanceledError",
    "ConnectionError",
    "DataLossError",
    "DeadlineExceededError",
    "DsecError",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "is_infrastructure_error",
    "is_interruption",
    "is_reason",
    "is_sandbox_gone",
]


class DsecError(Exception):
    """A call that the platform did not carry out. Made as the class of its code: `DsecError("FILE_NOT_FOUND", …)` is a
    `NotFoundError`.

    >>> try:
    ...     await sandbox.files.read("/no/such/file")
    ... except NotFoundError as error:
    ...     error.reason, error.retryable, error.outcome
    ('FILE_NOT_FOUND', False, '')
    """

    #: The code of the Connect protocol, "not_found".
    code: str = "internal"
    #: Stable name from the table: "SANDBOX_ENDED". Servers may send ones that this library does not know.
    reason: str
    #: The same call may succeed later without a change.
    retryable: bool
    #: "unknown" where something may have happened, else "".
    outcome: str
    #: Seconds after which a retry makes sense; 0 where nothing is known.
    retry_after: float
    #: Facts for programs, such as "end_reason".
    metadata: dict[str, str]

    _classes: ClassVar[dict[str, type[DsecError]]] = {}

    def __init_subclass__(cls, **more: object) -> None:
        super().__init_subclass__(**more)
        DsecError._classes.setdefault(cls.code, cls)

    def __new__(cls, reason: str = "INTERNAL", *args: object, **more: object) -> DsecError:
        return super().__new__(cls._classes.get(_code(reason), DsecError) if cls is DsecError else cls)

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        outcome_unknown: bool = False,
        retry_after: float = 0.0,
        metadata: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.retryable = ERROR_TABLE[reason][1] if reason in ERROR_TABLE else False
        self.outcome = "unknown" if outcome_unknown else ""
        self.retry_after = retry_after
        self.metadata = dict(metadata or {})

    @property
    def message(self) -> str:
        """What was asked and what was wrong."""
        return str(self.args[0])

    @property
    def next(self) -> str:
        """The step that the table advises, or ""."""
        return ERROR_TABLE[self.reason][3] if self.reason in ERROR_TABLE else ""

    def __str__(self) -> str:
        doubt = "; what was asked may have happened" if self.outcome else ""
        return f"{self.reason}: {self.message}{doubt}" + (f" ({self.next})" if self.next else "")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(cls: type[DsecError], args: tuple[object, ...], state: dict[str, object]) -> DsecError:
    error = Exception.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def _code(reason: str) -> str:
    return ERROR_TABLE[reason][0] if reason in ERROR_TABLE else "internal"


class InvalidArgumentError(DsecError):
    code = "invalid_argument"


class UnauthenticatedError(DsecError):
    code = "unauthenticated"


class PermissionDeniedError(DsecError):
    code = "permission_denied"


class NotFoundError(DsecError):
    code = "not_found"


class AlreadyExistsError(DsecError):
    code = "already_exists"


class ResourceExhaustedError(DsecError):
    code = "resource_exhausted"


class FailedPreconditionError(DsecError):
    code = "failed_precondition"


class DeadlineExceededError(DsecError):
    code = "deadline_exceeded"


class AbortedError(DsecError):
    code = "aborted"


class UnavailableError(DsecError):
    code = "unavailable"


class DataLossError(DsecError):
    code = "data_loss"


class UnimplementedError(DsecError):
    code = "unimplemented"


class CanceledError(DsecError):
    """The client was closed, or a stream was left before its end. A task that is cancelled gets
    `asyncio.CancelledError`, never this."""

    code = "canceled"


class InternalError(DsecError):
    code = "internal"


class ConnectionError(UnavailableError):
    """A connection that failed. `outcome` is "unknown" once the request may have reached the server."""

    #: The request, or a part of it, was handed to the network.
    sent: bool

    def __new__(cls, message: str, sent: bool) -> ConnectionError:
        return Exception.__new__(cls, message)

    def __init__(self, message: str, sent: bool) -> None:
        super().__init__("UNAVAILABLE", message, outcome_unknown=sent)
        self.sent = sent


_GONE = {"SANDBOX_NOT_FOUND", "SANDBOX_ENDED", "SANDBOX_LOST", "AETHER_PROTOCOL", "EDGE_NOT_FOUND"}
_FAULTS = {
    "SANDBOX_LOST",
    "AETHER_PROTOCOL",
    "UNAVAILABLE",
    "EDGE_UNREACHABLE",
    "HOSTD_UNAVAILABLE",
    "DATABASE_UNAVAILABLE",
    "LAUNCH_FAILED",
    "WRONG_SANDBOX",
    "INTERNAL",
    "DEADLINE_EXCEEDED",
    "FILE_WORKER_ENDED",
}
_INTERRUPTIONS = {
    "UNAVAILABLE",
    "EDGE_UNREACHABLE",
    "HOSTD_UNAVAILABLE",
    "DATABASE_UNAVAILABLE",
    "TOO_MANY_REQUESTS",
}


def is_reason(error: object, *reasons: str) -> TypeGuard[DsecError]:
    """True for an error of one of these reasons."""
    return isinstance(error, DsecError) and error.reason in reasons


def is_sandbox_gone(error: object) -> TypeGuard[DsecError]:
    """The sandbox is not there any more; `error.metadata["end_reason"]` says why where that is known."""
    return isinstance(error, DsecError) and error.reason in _GONE


def is_infrastructure_error(error: object) -> TypeGuard[DsecError]:
    """A fault of the platform or of the way to it: drop the sample, do not score it. A command's failure never is."""
    return isinstance(error, DsecError) and (
        error.reason in _FAULTS or error.outcome == "unknown" or error.reason in _GONE
    )


def is_interruption(error: object) -> TypeGuard[DsecError]:
    """The same call may succeed in a moment: the way was interrupted, or the server is busy."""
    return isinstance(error, DsecError) and error.reason in _INTERRUPTIONS


def with_doubt(error: DsecError) -> DsecError:
    """The same error, saying that something may have happened."""
    made = DsecError(
        error.reason,
        error.message,
        outcome_unknown=True,
        retry_after=error.retry_after,
        metadata=error.metadata,
    )
    made.__cause__ = error
    return made


def printable(text: str) -> str:
    """At most 64 characters of text from outside, in quotes and without control characters."""
    safe = json.dumps(text)
    return safe if len(safe) <= 66 else safe[:65] + '…"'
