// Unary calls as the library makes them: an attempt has a time limit, and what may be repeated is.
import {
  create,
  type DescMessage,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import type { HttpTransport } from "./http.ts";
import { retrying } from "./retry.ts";

export interface CallSettings {
  sandboxId?: string | undefined;
  signal?: AbortSignal | undefined;
  /** A second call does no harm even if the first was carried out. Default true. */
  harmless?: boolean;
  /** Milliseconds for one attempt; 0: none. Default: the client's requestTimeoutMs. */
  attemptMs?: number;
  /** Open for as long as a command runs. */
  long?: boolean;
  /** Never sent again by the library. */
  once?: boolean;
}

export class Calls {
  readonly http: HttpTransport;
  /** Milliseconds for one call, and within which an interrupted one is taken up again. */
  readonly requestMs: number;

  /** Work that goes on after its caller has left; waited for before the client closes. */
  readonly afterwards = new Set<Promise<unknown>>();

  constructor(http: HttpTransport, requestMs: number) {
    this.http = http;
    this.requestMs = requestMs;
  }

  /** Milliseconds for further attempts: short while nothing ever answered there, so that a wrong address shows at once. */
  get retryMs(): number {
    return this.http.answered ? this.requestMs : Math.min(1000, this.requestMs);
  }

  /** Keeps a promise whose failure interests nobody until it is settled. */
  later(work: Promise<unknown>): void {
    const settled = work.then(
      () => {},
      () => {},
    );
    this.afterwards.add(settled);
    void settled.finally(() => this.afterwards.delete(settled));
  }

  call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    init: MessageInitShape<I>,
    settings: CallSettings = {},
  ): Promise<MessageShape<O>> {
    const input = create(method.input, init);
    const { sandboxId, signal, long, attemptMs = this.requestMs } = settings;
    const attempt = () => this.http.unary(method, input, { sandboxId, signal, long, timeoutMs: attemptMs });
    if (settings.once) return attempt();
    return retrying(attempt, {
      withinMs: this.retryMs,
      harmless: settings.harmless ?? true,
      signal,
      heldOpen: long === true,
    });
  }
}
