import { DsecError } from "@dsec/api";
import type { Principal } from "@dsec/iam";

/** Whether the caller has left, or its key was revoked. Costs less than an AbortSignal, of which every call would need one. */
export class Departure {
  #happened = false;
  #run: (() => void) | undefined;

  get happened(): boolean {
    return this.#happened;
  }

  /** Runs this when it happens; one listener is all that a call needs. */
  onHappen(run: () => void): void {
    if (this.#happened) run();
    else this.#run = run;
  }

  happen(): void {
    if (this.#happened) return;
    this.#happened = true;
    this.#run?.();
  }
}

/** One call under way: who makes it, and until when its answer is wanted. */
export class Call {
  readonly method: string;
  readonly requestId: string;
  readonly principal: Principal;
  /** Signed, for edges. */
  readonly token: string;
  readonly departure: Departure;
  #deadlineMs = Number.POSITIVE_INFINITY;

  constructor(method: string, requestId: string, principal: Principal, token: string, departure: Departure) {
    this.method = method;
    this.requestId = requestId;
    this.principal = principal;
    this.token = token;
    this.departure = departure;
  }

  /** Milliseconds that are left; Infinity without a deadline. */
  get leftMs(): number {
    return this.#deadlineMs - Date.now();
  }

  /** The answer is wanted within so many milliseconds from now. */
  limitTo(timeoutMs: number | undefined): void {
    if (timeoutMs !== undefined) this.#deadlineMs = Math.min(this.#deadlineMs, Date.now() + timeoutMs);
  }

  /** The work's result, or DEADLINE_EXCEEDED with outcome unknown; the work itself goes on. */
  async untilDeadline<T>(work: Promise<T>): Promise<T> {
    if (this.#deadlineMs === Number.POSITIVE_INFINITY) return work;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(this.#late()), Math.min(Math.max(0, this.leftMs), 2 ** 31 - 1));
    });
    try {
      return await Promise.race([work, late]);
    } finally {
      clearTimeout(timer);
      work.catch(() => {});
    }
  }

  #late(): DsecError {
    return new DsecError("DEADLINE_EXCEEDED", `${this.method} did not end in the time that the caller allowed`, {
      outcomeUnknown: true,
    });
  }
}
