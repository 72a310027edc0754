// The edge's one channel to hostd: calls are pipelined on one connection, which is made again after it breaks.
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { DsecError, type HostdDied, type HostdReply, HostdReplySchema, HostdRequestSchema } from "@dsec/api";
import type { Logger } from "../log.ts";
import { FrameConnection } from "../wire/connection.ts";
import { encodeFrame, type Frame, frameKind, joinParts, ProtocolError } from "../wire/frames.ts";

export type HostdCall = NonNullable<MessageInitShape<typeof HostdRequestSchema>["call"]>;
type ResultCase = NonNullable<HostdReply["result"]["case"]>;
type ResultOf<C extends ResultCase> = Extract<HostdReply["result"], { case: C }>["value"];

const reconnectMs = 50;

export interface HostdEvents {
  /** A connection stands and is subscribed; also after each reconnect. */
  onConnected(): void;
  onDied(died: HostdDied): void;
}

interface Waiting {
  resolve(reply: HostdReply): void;
  reject(error: Error): void;
}

export class HostdClient {
  private readonly path: string;
  private readonly log: Logger;
  private connection: FrameConnection | undefined;
  private up = false;
  private stopped = false;
  private nextId = 1;
  private readonly waiting = new Map<number, Waiting>();
  private readonly waitingForUp = new Set<() => void>();
  private timer: NodeJS.Timeout | undefined;
  private events: HostdEvents | undefined;

  constructor(path: string, log: Logger) {
    this.path = path;
    this.log = log;
  }

  get connected(): boolean {
    return this.up;
  }

  start(events: HostdEvents): void {
    this.events = events;
    this.connect();
  }

  close(): void {
    this.stopped = true;
    clearTimeout(this.timer);
    this.connection?.close();
    for (const wake of [...this.waitingForUp]) wake();
  }

  /**
   * Sends one order and waits for its reply of the kind `expect`. An order is sent once: where the connection breaks
   * before the reply, HOSTD_UNAVAILABLE with outcome unknown.
   * @param waitMs how long to wait for a connection, in milliseconds
   */
  async call<C extends ResultCase>(call: HostdCall, expect: C, waitMs = 3000): Promise<ResultOf<C>> {
    if (!this.up) await this.waitUntilUp(waitMs);
    const reply = await this.send(call);
    if (reply.result.case === "error") throw DsecError.fromInfo(reply.result.value);
    if (reply.result.case !== expect)
      throw new DsecError("INTERNAL", `hostd answered ${reply.result.case} to ${call.case}`);
    return reply.result.value as ResultOf<C>;
  }

  private async waitUntilUp(waitMs: number): Promise<void> {
    if (!this.stopped && waitMs > 0) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(wake, waitMs);
        const all = this.waitingForUp;
        function wake() {
          clearTimeout(timer);
          all.delete(wake);
          resolve();
        }
        all.add(wake);
      });
    }
    if (!this.up)
      throw new DsecError("HOSTD_UNAVAILABLE", "hostd did not answer on its socket", { retryAfterMs: 1000 });
  }

  private send(call: HostdCall): Promise<HostdReply> {
    const connection = this.connection;
    if (!connection) throw new DsecError("HOSTD_UNAVAILABLE", "hostd is not connected");
    const id = this.nextId;
    this.nextId = id >= 0x7fffffff ? 1 : id + 1;
    const bytes = toBinary(HostdRequestSchema, create(HostdRequestSchema, { id, call }));
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      connection.write(encodeFrame(frameKind.message, bytes));
    });
  }

  private connect(): void {
    if (this.stopped) return;
    const connection = new FrameConnection(this.path, frameKind.message, {
      onFrame: (frame) => this.onFrame(frame),
      onClose: (error) => this.onClose(error),
    });
    this.connection = connection;
    connection.socket.once("connect", () => void this.subscribe());
  }

  private async subscribe(): Promise<void> {
    try {
      const reply = await this.send({ case: "subscribe", value: {} });
      if (reply.result.case !== "done") throw new ProtocolError(`hostd answered ${reply.result.case} to subscribe`);
    } catch (error) {
      this.connection?.close(error as Error);
      return;
    }
    this.up = true;
    for (const wake of [...this.waitingForUp]) wake();
    this.events?.onConnected();
  }

  private onFrame(frame: Frame): void {
    const reply = fromBinary(HostdReplySchema, joinParts(frame.parts, frame.length));
    if (reply.result.case === "died") {
      this.events?.onDied(reply.result.value);
      return;
    }
    const waiting = this.waiting.get(reply.id);
    if (!waiting) throw new ProtocolError(`hostd answered a call that was not made: ${reply.id}`);
    this.waiting.delete(reply.id);
    waiting.resolve(reply);
  }

  private onClose(error?: Error): void {
    if (this.up) this.log.warn({ err: error }, "hostd's connection broke");
    this.up = false;
    this.connection = undefined;
    for (const waiting of this.waiting.values()) {
      waiting.reject(
        new DsecError("HOSTD_UNAVAILABLE", "hostd's connection broke before it answered", {
          outcomeUnknown: true,
          retryAfterMs: 1000,
          cause: error,
        }),
      );
    }
    this.waiting.clear();
    if (!this.stopped) this.timer = setTimeout(() => this.connect(), reconnectMs);
  }
}
