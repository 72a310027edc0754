// One connection to a sandbox's aether. Everything that comes from there is taken for hostile.
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  type AetherHelloReply,
  type AetherReply,
  AetherReplySchema,
  AetherRequestSchema,
  DsecError,
  type ErrorInfo,
  errorTable,
  printable,
} from "@dsec/api";
import { FrameConnection } from "../wire/connection.ts";
import {
  encodeFrame,
  type Frame,
  frameHeader,
  frameKind,
  joinParts,
  maxPayload,
  ProtocolError,
} from "../wire/frames.ts";

export type AetherCall = NonNullable<MessageInitShape<typeof AetherRequestSchema>["call"]>;

/** The versions of aether's wire that this edge speaks: aethers outlive its upgrades. */
export const aetherVersions = { min: 1, max: 1 } as const;

const helloId = 1;

export interface AetherHandlers {
  onHello?(hello: AetherHelloReply): void;
  onReply(reply: AetherReply): void;
  /** Frames of output, of a file or of a tar; without a handler such a frame is a breach. */
  onBytes?(frame: Frame): void;
  /** Once, at the end; ProtocolError where aether broke the rules, DsecError where it refused the hello. */
  onClose(error?: Error): void;
}

export class AetherConnection {
  readonly wire: FrameConnection;
  private readonly sandboxId: string;
  private handlers: AetherHandlers;
  private greeted = false;
  private lastId = helloId;

  /** Connects and says hello; calls may be sent at once. */
  constructor(path: string, sandboxId: string, handlers: AetherHandlers) {
    this.sandboxId = sandboxId;
    this.handlers = handlers;
    this.wire = new FrameConnection(path, frameKind.stderr, {
      onFrame: (frame) => this.onFrame(frame),
      onClose: (error) => this.handlers.onClose(error),
    });
    this.wire.socket.cork();
    process.nextTick(() => this.wire.socket.uncork());
    this.send(helloId, {
      case: "hello",
      value: { minVersion: aetherVersions.min, maxVersion: aetherVersions.max, sandboxId },
    });
  }

  /** For a spare: the next call's handlers. */
  reuse(handlers: AetherHandlers): void {
    this.handlers = handlers;
  }

  /** Its call is over; whatever comes now is a breach. False where it is not worth keeping. */
  rest(): boolean {
    if (this.wire.isClosed || this.wire.readsMuch) return false;
    this.handlers = resting;
    return true;
  }

  /** An ID that this connection has not used. */
  newId(): number {
    this.lastId++;
    return this.lastId;
  }

  /** @param id above 1, not in use on this connection */
  send(id: number, call: AetherCall): void {
    const bytes = toBinary(AetherRequestSchema, create(AetherRequestSchema, { id, call }));
    if (bytes.length > maxPayload)
      throw new DsecError("TOO_LARGE", `the call has ${bytes.length} bytes; at most 1 MiB may be`);
    this.wire.write(encodeFrame(frameKind.message, bytes));
  }

  /** Sends contents (a file or a tar) without copying; false when the caller should wait for the callback. */
  sendBytes(bytes: Uint8Array, onWritten?: () => void): boolean {
    this.wire.socket.cork();
    this.wire.write(frameHeader(frameKind.stdout, bytes.length));
    const room = this.wire.write(bytes, onWritten);
    this.wire.socket.uncork();
    return room;
  }

  close(error?: Error): void {
    this.wire.close(error);
  }

  private onFrame(frame: Frame): void {
    if (frame.kind !== frameKind.message) {
      if (!this.greeted || !this.handlers.onBytes)
        throw new ProtocolError("aether sent contents that were not asked for");
      this.handlers.onBytes(frame);
      return;
    }
    const reply = decode(frame);
    if (this.greeted) {
      this.handlers.onReply(reply);
      return;
    }
    if (reply.result.case === "error") throw aetherError(reply.result.value);
    if (reply.result.case !== "hello") throw new ProtocolError(`aether answered hello with ${reply.result.case}`);
    const hello = reply.result.value;
    if (hello.sandboxId !== this.sandboxId) {
      throw new DsecError(
        "WRONG_SANDBOX",
        `the supervisor of ${this.sandboxId} says it is ${printable(hello.sandboxId)}`,
      );
    }
    if (hello.version < aetherVersions.min || hello.version > aetherVersions.max) {
      throw new ProtocolError(`aether chose version ${hello.version}, which was not offered`);
    }
    this.greeted = true;
    this.handlers.onHello?.(hello);
  }
}

const resting: AetherHandlers = {
  onReply: () => {
    throw new ProtocolError("aether answered a call that was over");
  },
  onClose: () => {},
};

function decode(frame: Frame): AetherReply {
  try {
    return fromBinary(AetherReplySchema, joinParts(frame.parts, frame.length));
  } catch {
    throw new ProtocolError("aether sent a message that cannot be decoded");
  }
}

const largestMessage = 2000;

/** An error that aether reports; its reason must be of the table, its text is made printable. */
export function aetherError(info: ErrorInfo): DsecError {
  const known = Object.hasOwn(errorTable, info.reason);
  const text = JSON.stringify(info.message.slice(0, largestMessage))
    .slice(1, -1)
    .replaceAll('\\"', '"')
    .replaceAll("\\\\", "\\");
  const metadata: Record<string, string> = {};
  for (const [name, value] of Object.entries(info.metadata).slice(0, 16)) metadata[printable(name)] = printable(value);
  return new DsecError(known ? info.reason : "INTERNAL", text, {
    outcomeUnknown: info.outcome === "unknown",
    retryAfterMs: Math.min(Number(info.retryAfterMs), 3_600_000),
    metadata,
  });
}
