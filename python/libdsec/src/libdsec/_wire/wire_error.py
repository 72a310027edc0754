"""Errors as they come over the wire: Connect's JSON, with our ErrorInfo as a detail."""

from __future__ import annotations

import base64
import json
import re

from ..errors import DsecError
from . import messages as m
from .codec import WireError, decode

_REASONS = {
    "canceled": "CANCELLED",
    "invalid_argument": "INVALID_ARGUMENT",
    "deadline_exceeded": "DEADLINE_EXCEEDED",
    "unauthenticated": "UNAUTHENTICATED",
    "permission_denied": "PERMISSION_DENIED",
    "resource_exhausted": "TOO_MANY_REQUESTS",
    "unimplemented": "NO_SUCH_METHOD",
    "unavailable": "UNAVAILABLE",
}
_REASONS_OF_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NO_SUCH_METHOD",
    429: "TOO_MANY_REQUESTS",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "UNAVAILABLE",
}


def error_of_info(info: m.ErrorInfo) -> DsecError:
    return DsecError(
        info.reason or "INTERNAL",
        info.message,
        outcome_unknown=info.outcome == "unknown",
        retry_after=info.retry_after_ms / 1000,
        metadata=info.metadata,
    )


def error_of_body(body: bytes, status: int, where: str, headers: dict[str, str]) -> DsecError:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if isinstance(value, dict) and ("code" in value or "details" in value):
        return error_of_json(value, status, headers.get("retry-after"))
    # Not one of our servers: a proxy's page, or another program.
    kind = headers.get("content-type", "without a content-type")
    said = re.sub(r"\s+", " ", re.sub(rb"<[^>]*>", b" ", body[:2000]).decode("utf-8", "replace")).strip()[:100]
    message = f"{where} answered with HTTP status {status} and {kind}, which is no answer of DSec's: {json.dumps(said)}"
    return DsecError(
        _REASONS_OF_STATUS.get(status, "INTERNAL"), message, retry_after=_seconds(headers.get("retry-after"))
    )


def error_of_json(value: object, status: int, retry_after: str | None = None) -> DsecError:
    """@param status: HTTP status, or 0 for the last frame of a stream."""
    error = value if isinstance(value, dict) else {}
    details = error.get("details")
    for detail in details if isinstance(details, list) else []:
        if not isinstance(detail, dict) or detail.get("type") != "dsec.v1.ErrorInfo":
            continue
        try:
            raw = str(detail.get("value"))
            return error_of_info(decode(m.ErrorInfo, base64.b64decode(raw + "=" * (-len(raw) % 4))))
        except (WireError, ValueError):
            pass  # A detail that cannot be read leaves code and message.
    code, message = error.get("code"), error.get("message")
    reason = _REASONS.get(code) if isinstance(code, str) else None
    reason = reason or _REASONS_OF_STATUS.get(status, "INTERNAL")
    text = message if isinstance(message, str) and message else f"the server answered with HTTP status {status}"
    return DsecError(reason, text, retry_after=_seconds(retry_after))


def _seconds(retry_after: str | None) -> float:
    try:
        return max(0.0, float(retry_after or 0))
    except ValueError:
        return 0.0
