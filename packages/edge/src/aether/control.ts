// A sandbox's standing connection to its aether: unary calls, pipelined, and the first to see that aether is gone.
import type { AetherHelloReply, AetherReply } from "@dsec/api";
import { DsecError } from "@dsec/api";
import { ProtocolError } from "../wire/frames.ts";
import { type AetherCall, AetherConnection, aetherError } from "./connection.ts";

type ResultCase = NonNullable<AetherReply["result"]["case"]>;
type ResultOf<C extends ResultCase> = Extract<AetherReply["result"], { case: C }>["value"];

interface Waiting {
  readonly expect: ResultCase;
  resolve(value: unknown): void;
  reject(error: Error): void;
}

/** More calls than this at once on one sandbox are refused. */
const maxCalls = 4096;

export class AetherControl {
  readonly hello: Promise<AetherHelloReply>;
  private readonly connection: AetherConnection;
  private readonly waiting = new Map<number, Waiting>();
  private nextId = 2;
  private closeError: Error | undefined;

  /** @param onClose once, when the connection is gone and `close` was not called */
  constructor(path: string, sandboxId: string, onClose: (error?: Error) => void) {
    let greeted: (hello: AetherHelloReply) => void = () => {};
    let refused: (error: Error) => void = () => {};
    this.hello = new Promise((resolve, reject) => {
      greeted = resolve;
      refused = reject;
    });
    this.hello.catch(() => {});
    this.connection = new AetherConnection(path, sandboxId, {
      onHello: greeted,
      onReply: (reply) => this.onReply(reply),
      onClose: (error) => {
        const wanted = this.closeError !== undefined;
        this.closeError ??= error ?? gone(sandboxId);
        refused(this.closeError);
        for (const waiting of this.waiting.values()) waiting.reject(asDsecError(this.closeError, sandboxId));
        this.waiting.clear();
        if (!wanted) onClose(error);
      },
    });
  }

  /** One call and its reply; the error of aether, or UNAVAILABLE with outcome unknown where the connection broke. */
  call<C extends ResultCase>(call: AetherCall, expect: C): Promise<ResultOf<C>> {
    return new Promise((resolve, reject) => {
      if (this.closeError) throw this.closeError instanceof DsecError ? this.closeError : gone("");
      if (this.waiting.size >= maxCalls)
        throw new DsecError("TOO_MANY_REQUESTS", `${maxCalls} calls wait for this sandbox`);
      const id = this.nextId;
      this.nextId = id >= 0xffffffff ? 2 : id + 1;
      this.connection.send(id, call);
      this.waiting.set(id, { expect, resolve: resolve as (value: unknown) => void, reject });
    });
  }

  /** Ends the connection without telling onClose. */
  close(): void {
    this.closeError ??= gone("");
    this.connection.close();
  }

  private onReply(reply: AetherReply): void {
    const waiting = this.waiting.get(reply.id);
    if (!waiting) throw new ProtocolError(`aether answered a call that was not made: ${reply.id}`);
    this.waiting.delete(reply.id);
    if (reply.result.case === "error") {
      waiting.reject(aetherError(reply.result.value));
      return;
    }
    if (reply.result.case !== waiting.expect) {
      const error = new ProtocolError(`aether answered ${reply.result.case} where ${waiting.expect} belongs`);
      waiting.reject(asDsecError(error, ""));
      throw error;
    }
    waiting.resolve(reply.result.value);
  }
}

function gone(sandboxId: string): DsecError {
  return new DsecError("UNAVAILABLE", `the connection to the supervisor of ${sandboxId || "the sandbox"} ended`, {
    outcomeUnknown: true,
  });
}

/** A broken connection as an error for callers. */
export function asDsecError(error: Error | undefined, sandboxId: string): DsecError {
  if (error instanceof DsecError) return error;
  if (error instanceof ProtocolError) return new DsecError("AETHER_PROTOCOL", error.message, { outcomeUnknown: true });
  return gone(sandboxId);
}
