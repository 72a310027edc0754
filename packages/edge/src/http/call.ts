// One Connect call under way: who makes it, and when nobody waits for its answer any more.
import type { ServerResponse } from "node:http";
import { DsecError } from "@dsec/api";
import type { RpcContext } from "@dsec/rpc";
import type { Principal } from "../auth/principal.ts";

const longestTimerMs = 2 ** 31 - 1;

export class EdgeCall implements RpcContext {
  readonly requestId: string;
  readonly principal: Principal;
  private readonly response: ServerResponse;
  private readonly controller = new AbortController();
  private timer: NodeJS.Timeout | undefined;

  constructor(requestId: string, principal: Principal, response: ServerResponse) {
    this.requestId = requestId;
    this.principal = principal;
    this.response = response;
    response.once("close", () => this.onClose());
  }

  /** Fires when the caller has left or its time is over; the reason is a DsecError. */
  get signal(): AbortSignal {
    return this.controller.signal;
  }

  limitTo(timeoutMs: number | undefined): void {
    if (timeoutMs === undefined) return;
    const late = () => this.controller.abort(new DsecError("DEADLINE_EXCEEDED", "the time for the call is over"));
    this.timer = setTimeout(late, Math.min(timeoutMs, longestTimerMs));
  }

  /** The work itself heeds the signal where it is long. */
  untilDeadline<T>(work: Promise<T>): Promise<T> {
    if (!this.timer) return work;
    return Promise.race([work, this.tooLate()]).finally(() => work.catch(() => {}));
  }

  private tooLate(): Promise<never> {
    return new Promise((_, reject) => {
      const late = () =>
        reject(
          new DsecError("DEADLINE_EXCEEDED", "the time for the call is over; what it began goes on", {
            outcomeUnknown: true,
          }),
        );
      if (this.signal.aborted) late();
      // One turn later: work that heeds the signal says more exactly what became of it.
      else this.signal.addEventListener("abort", () => setImmediate(late), { once: true });
    });
  }

  private onClose(): void {
    clearTimeout(this.timer);
    if (!this.response.writableFinished) this.controller.abort(new DsecError("CANCELLED", "the caller has left"));
  }
}
