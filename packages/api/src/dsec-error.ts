import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { type ErrorReason, errorTable } from "./errors.ts";
import { type ErrorInfo, ErrorInfoSchema } from "./gen/dsec/v1/error_pb.ts";

export interface DsecErrorOptions {
  /** Something may have happened. */
  readonly outcomeUnknown?: boolean;
  readonly retryAfterMs?: number;
  readonly metadata?: Record<string, string>;
  readonly cause?: unknown;
}

/** Every failure that a caller sees; `reason` is stable, `message` is for people. */
export class DsecError extends Error {
  readonly reason: ErrorReason | (string & {});
  readonly code: Code;
  readonly retryable: boolean;
  readonly outcome: "" | "unknown";
  readonly retryAfterMs: number;
  readonly metadata: Readonly<Record<string, string>>;

  /** @param message what was asked and what was wrong; the table's next step is added when it is shown. */
  constructor(reason: ErrorReason | (string & {}), message: string, options: DsecErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "DsecError";
    const kind = errorKind(reason);
    this.reason = reason;
    this.code = kind?.code ?? Code.Internal;
    this.retryable = kind?.retryable ?? false;
    this.outcome = options.outcomeUnknown ? "unknown" : "";
    this.retryAfterMs = options.retryAfterMs ?? 0;
    this.metadata = options.metadata ?? {};
  }

  /** The step that the table advises, or "". */
  get next(): string {
    return errorKind(this.reason)?.next ?? "";
  }

  toInfo(): ErrorInfo {
    return create(ErrorInfoSchema, {
      reason: this.reason,
      message: this.message,
      retryable: this.retryable,
      outcome: this.outcome,
      retryAfterMs: BigInt(Math.round(this.retryAfterMs)),
      metadata: { ...this.metadata },
    });
  }

  toConnect(): ConnectError {
    const headers = this.retryAfterMs > 0 ? { "retry-after": String(Math.ceil(this.retryAfterMs / 1000)) } : {};
    return new ConnectError(this.message, this.code, headers, [{ desc: ErrorInfoSchema, value: this.toInfo() }]);
  }

  static fromInfo(info: ErrorInfo): DsecError {
    return new DsecError(info.reason, info.message, {
      outcomeUnknown: info.outcome === "unknown",
      retryAfterMs: Number(info.retryAfterMs),
      metadata: info.metadata,
    });
  }

  /** Any thrown thing as a DsecError; what carries no reason becomes UNAVAILABLE, CANCELLED, DEADLINE_EXCEEDED or INTERNAL. */
  static from(error: unknown): DsecError {
    if (error instanceof DsecError) return error;
    if (error instanceof ConnectError) {
      const info = error.findDetails(ErrorInfoSchema)[0];
      if (info) return DsecError.fromInfo(info);
      return new DsecError(reasonOfCode(error.code), error.rawMessage, { cause: error });
    }
    const message = error instanceof Error ? error.message : String(error);
    return new DsecError("INTERNAL", message, { cause: error });
  }
}

function errorKind(reason: string) {
  return Object.hasOwn(errorTable, reason) ? errorTable[reason as ErrorReason] : undefined;
}

function reasonOfCode(code: Code): ErrorReason {
  switch (code) {
    case Code.Canceled:
      return "CANCELLED";
    case Code.InvalidArgument:
      return "INVALID_ARGUMENT";
    case Code.DeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case Code.Unauthenticated:
      return "UNAUTHENTICATED";
    case Code.PermissionDenied:
      return "PERMISSION_DENIED";
    case Code.ResourceExhausted:
      return "TOO_MANY_REQUESTS";
    case Code.Unimplemented:
      return "NO_SUCH_METHOD";
    case Code.Unavailable:
      return "UNAVAILABLE";
    default:
      return "INTERNAL";
  }
}
