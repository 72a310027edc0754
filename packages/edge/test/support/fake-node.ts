// A small hostd and aether that speak the frames, for tests of the edge's own logic and of hostile peers.
import { mkdirSync, rmSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  type AetherReply,
  AetherReplySchema,
  type AetherRequest,
  AetherRequestSchema,
  HostdReplySchema,
  type HostdRequest,
  HostdRequestSchema,
} from "@dsec/api";
import { encodeFrame, type Frame, FrameReader, frameKind, joinParts } from "../../src/wire/frames.ts";

type AetherResult = MessageInitShape<typeof AetherReplySchema>["result"];
type HostdResult = MessageInitShape<typeof HostdReplySchema>["result"];

export class Peer {
  readonly socket: net.Socket;
  constructor(socket: net.Socket, onFrame: (frame: Frame) => void) {
    this.socket = socket;
    const reader = new FrameReader(2);
    socket.on("data", (chunk) => reader.push(chunk as Buffer, onFrame));
    socket.on("error", () => {});
  }
  aether(id: number, result: AetherResult): void {
    const message = create(AetherReplySchema, { id, result: result as AetherReply["result"] });
    this.socket.write(encodeFrame(frameKind.message, toBinary(AetherReplySchema, message)));
  }
  hostd(id: number, result: HostdResult): void {
    const message = create(HostdReplySchema, { id, result: result as never });
    this.socket.write(encodeFrame(frameKind.message, toBinary(HostdReplySchema, message)));
  }
  output(kind: number, offset: number, dropped: number, data: Uint8Array): void {
    const payload = Buffer.alloc(16 + data.length);
    payload.writeBigUInt64BE(BigInt(offset), 0);
    payload.writeBigUInt64BE(BigInt(dropped), 8);
    payload.set(data, 16);
    this.socket.write(encodeFrame(kind, payload));
  }
}

export type AetherHandler = (peer: Peer, request: AetherRequest, aether: FakeAether) => boolean;

/** Answers hello, configure and ping; `handler` may answer anything first (true: it did). */
export class FakeAether {
  readonly id: string;
  readonly requests: AetherRequest[] = [];
  readonly peers = new Set<Peer>();
  runningCommands = 0;
  idleMs = 0;
  private readonly server: net.Server;

  constructor(path: string, id: string, node: FakeNode) {
    this.id = id;
    this.server = net.createServer((socket) => {
      const peer: Peer = new Peer(socket, (frame) => {
        if (frame.kind !== frameKind.message) return node.onContents?.(peer, frame);
        const request = fromBinary(AetherRequestSchema, joinParts(frame.parts, frame.length));
        this.requests.push(request);
        if (node.handler?.(peer, request, this)) return;
        this.answer(peer, request);
      });
      this.peers.add(peer);
      socket.on("close", () => this.peers.delete(peer));
    });
    this.server.listen(path);
  }

  close(): void {
    this.server.close();
    for (const peer of this.peers) peer.socket.destroy();
  }

  private answer(peer: Peer, { id, call }: AetherRequest): void {
    if (call.case === "hello") {
      const { runningCommands, idleMs } = this;
      peer.aether(id, {
        case: "hello",
        value: { version: 1, sandboxId: this.id, runningCommands, idleMs: BigInt(Math.round(idleMs)) },
      });
    } else if (call.case === "start") {
      const command = { commandId: call.value.commandId };
      peer.aether(id, { case: "command", value: command });
      if (!call.value.attach) return;
      peer.output(1, 0, 0, Buffer.from("hello\n"));
      peer.aether(id, { case: "ended", value: { exitCode: 0, stdoutBytes: 6n } });
    } else {
      peer.aether(id, { case: "done", value: {} });
    }
  }
}

export class FakeNode {
  readonly runDir: string;
  readonly aethers = new Map<string, FakeAether>();
  readonly kept = new Set<string>();
  readonly stopped: string[] = [];
  readonly calls: string[] = [];
  handler: AetherHandler | undefined;
  onContents: ((peer: Peer, frame: Frame) => void) | undefined;
  /** Delays or fails a start; rejects with an ErrorInfo's reason. */
  beforeStart: (() => Promise<void>) | undefined;
  private server: net.Server | undefined;
  private readonly subscribers = new Set<Peer>();
  private readonly slots = new Map<string, number>();
  private nextSlot = 0;

  constructor(runDir: string) {
    this.runDir = runDir;
    this.listen();
  }

  listen(): void {
    rmSync(join(this.runDir, "hostd.sock"), { force: true });
    this.server = net.createServer((socket) => {
      const peer: Peer = new Peer(socket, (frame) => {
        const request = fromBinary(HostdRequestSchema, joinParts(frame.parts, frame.length));
        this.calls.push(request.call.case ?? "");
        void this.answer(peer, request);
      });
      this.subscribers.add(peer);
      socket.on("close", () => this.subscribers.delete(peer));
    });
    this.server.listen(join(this.runDir, "hostd.sock"));
  }

  /** As hostd killed: sandboxes stay. */
  kill(): void {
    this.server?.close();
    for (const peer of this.subscribers) peer.socket.destroy();
  }

  close(): void {
    this.kill();
    for (const aether of this.aethers.values()) aether.close();
  }

  /** As a sandbox that died by itself. */
  die(id: string, cause: string): void {
    this.aethers.get(id)?.close();
    for (const peer of this.subscribers) peer.hostd(0, { case: "died", value: { sandboxId: id, cause } });
  }

  private async answer(peer: Peer, { id, call }: HostdRequest): Promise<void> {
    switch (call.case) {
      case "info":
        peer.hostd(id, { case: "info", value: { version: 1, slots: 100, diskLimit: "btrfs", bootId: "boot" } });
        return;
      case "start":
        try {
          await this.beforeStart?.();
        } catch (error) {
          peer.hostd(id, { case: "error", value: { reason: (error as Error).message, message: "as the test wants" } });
          return;
        }
        peer.hostd(id, { case: "started", value: { slot: this.start(call.value.sandboxId) } });
        return;
      case "stop": {
        const aether = this.aethers.get(call.value.sandboxId);
        aether?.close();
        this.aethers.delete(call.value.sandboxId);
        this.stopped.push(call.value.sandboxId);
        if (call.value.keep) this.kept.add(call.value.sandboxId);
        else this.kept.delete(call.value.sandboxId);
        peer.hostd(id, { case: "stopped", value: { existed: aether !== undefined, usage: { cpuSeconds: 1.5 } } });
        return;
      }
      case "list": {
        const alive = [...this.aethers.keys()].map((sandboxId) => ({
          sandboxId,
          slot: this.slots.get(sandboxId) ?? 0,
          alive: true,
        }));
        const kept = [...this.kept].map((sandboxId) => ({ sandboxId, kept: true }));
        peer.hostd(id, { case: "sandboxes", value: { sandboxes: [...alive, ...kept] } });
        return;
      }
      case "usage":
        peer.hostd(id, { case: "usage", value: { cpuSeconds: 0.5, memoryBytes: 1000n, processes: 3 } });
        return;
      default:
        peer.hostd(id, { case: "done", value: {} });
    }
  }

  start(id: string): number {
    const slot = this.nextSlot++;
    this.slots.set(id, slot);
    mkdirSync(join(this.runDir, String(slot)), { recursive: true });
    const path = join(this.runDir, String(slot), "aether.sock");
    rmSync(path, { force: true });
    this.aethers.set(id, new FakeAether(path, id, this));
    return slot;
  }
}
