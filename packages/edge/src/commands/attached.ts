// One command attached on a connection of its own: output as it comes, then how it ended.
import {
  type AetherReply,
  type CommandInfo,
  type CommandOutcome,
  type CommandSpec,
  type DsecError,
  LimitHit,
} from "@dsec/api";
import { AetherConnection, type AetherHandlers, aetherError } from "../aether/connection.ts";
import { asDsecError } from "../aether/control.ts";
import { type Output, OutputReader } from "../aether/output.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import { type Frame, ProtocolError } from "../wire/frames.ts";

export interface Attached {
  onStarted?(command: CommandInfo): void;
  onOutput(output: Output): void;
  /** Once. Absent outcome and error: it still runs, and only what was recorded was asked for. */
  onEnd(outcome: CommandOutcome | undefined, error?: DsecError): void;
}

export type AttachCall =
  | { readonly start: CommandSpec }
  | { readonly stdoutOffset: number; readonly stderrOffset: number; readonly recordedOnly?: boolean };

export class AttachedCommand {
  private readonly connection: AetherConnection;
  private readonly output = new OutputReader();
  private readonly handlers: Attached;
  private readonly sandbox: Sandbox;
  private readonly callId: number;
  private ended = false;
  private detached = false;

  constructor(sandbox: Sandbox, commandId: string, call: AttachCall, handlers: Attached) {
    sandbox.reachable();
    this.sandbox = sandbox;
    this.handlers = handlers;
    const own: AetherHandlers = {
      onReply: (reply) => this.onReply(reply),
      onBytes: (frame) => this.onBytes(frame),
      onClose: (error) => this.onClose(error),
    };
    const spare = sandbox.spares.take();
    spare?.reuse(own);
    this.connection = spare ?? new AetherConnection(sandbox.socketPath, sandbox.id, own);
    const callId = this.connection.newId();
    this.callId = callId;
    if ("start" in call) {
      this.connection.send(callId, { case: "start", value: { commandId, spec: call.start, attach: true } });
      return;
    }
    this.connection.send(callId, {
      case: "attach",
      value: {
        commandId,
        stdoutOffset: BigInt(call.stdoutOffset),
        stderrOffset: BigInt(call.stderrOffset),
        recordedOnly: call.recordedOnly ?? false,
      },
    });
  }

  /** Nothing once it has ended: the connection may serve another command already. */
  pause(): void {
    if (!this.ended) this.connection.wire.pause();
  }

  resume(): void {
    if (!this.ended) this.connection.wire.resume();
  }

  /** To be called in onOutput; the result, once the output has been passed on and is kept by nobody. */
  lend(): () => void {
    const { wire } = this.connection;
    const { mark } = wire;
    return () => wire.recycle(mark);
  }

  /** Lets go of the output; the command goes on. onEnd is not called any more. */
  detach(): void {
    this.detached = true;
    // Once it has ended the connection may serve another command already.
    if (this.ended) return;
    this.ended = true;
    this.connection.close();
  }

  private onReply(reply: AetherReply): void {
    if (this.ended) return;
    if (reply.id !== this.callId) throw new ProtocolError(`aether answered a call that was not made: ${reply.id}`);
    const { result } = reply;
    switch (result.case) {
      case "command":
        this.handlers.onStarted?.(result.value);
        return;
      case "ended":
        this.end(result.value);
        return;
      case "done":
        this.finish(undefined);
        return;
      case "error":
        this.finish(undefined, aetherError(result.value));
        return;
      default:
        throw new ProtocolError(`aether answered ${result.case} to an attached command`);
    }
  }

  private onBytes(frame: Frame): void {
    if (!this.ended) this.handlers.onOutput(this.output.read(frame));
  }

  private onClose(error: Error | undefined): void {
    if (this.ended) return;
    if (error instanceof ProtocolError) this.sandbox.hostile(error);
    this.ended = true;
    this.handlers.onEnd(undefined, asDsecError(error, this.sandbox.id));
  }

  /** A command that failed may have met the disk limit, which only the node can tell. */
  private end(outcome: CommandOutcome): void {
    if (outcome.exitCode === 0 || !this.sandbox.diskIsFull) {
      this.finish(outcome);
      return;
    }
    this.ended = true;
    this.sandbox.spares.give(this.connection);
    void this.sandbox.diskIsFull().then((full) => {
      if (full) outcome.limitHit.push(LimitHit.DISK);
      if (!this.detached) this.handlers.onEnd(outcome);
    });
  }

  private finish(outcome: CommandOutcome | undefined, error?: DsecError): void {
    this.ended = true;
    // After an error aether may be about to cut it.
    if (error) this.connection.close();
    else this.sandbox.spares.give(this.connection);
    this.handlers.onEnd(outcome, error);
  }
}
