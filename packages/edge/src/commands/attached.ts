// One command attached on a connection of its own: output as it comes, then how it ended.
import type { AetherReply, CommandInfo, CommandOutcome, CommandSpec, DsecError } from "@dsec/api";
import { AetherConnection, aetherError } from "../aether/connection.ts";
import { asDsecError } from "../aether/control.ts";
import { type Output, OutputReader } from "../aether/output.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import { type Frame, ProtocolError } from "../wire/frames.ts";

const callId = 2;

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
  private ended = false;

  constructor(sandbox: Sandbox, commandId: string, call: AttachCall, handlers: Attached) {
    sandbox.running();
    this.sandbox = sandbox;
    this.handlers = handlers;
    this.connection = new AetherConnection(sandbox.socketPath, sandbox.id, {
      onReply: (reply) => this.onReply(reply),
      onBytes: (frame) => this.onBytes(frame),
      onClose: (error) => this.onClose(error),
    });
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

  pause(): void {
    this.connection.wire.pause();
  }

  resume(): void {
    this.connection.wire.resume();
  }

  /** Lets go of the output; the command goes on. onEnd is not called any more. */
  detach(): void {
    this.ended = true;
    this.connection.close();
  }

  private onReply(reply: AetherReply): void {
    if (this.ended) return;
    if (reply.id !== callId) throw new ProtocolError(`aether answered a call that was not made: ${reply.id}`);
    const { result } = reply;
    switch (result.case) {
      case "command":
        this.handlers.onStarted?.(result.value);
        return;
      case "ended":
        this.finish(result.value);
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
    this.finish(undefined, asDsecError(error, this.sandbox.id));
  }

  private finish(outcome: CommandOutcome | undefined, error?: DsecError): void {
    this.ended = true;
    this.connection.close();
    this.handlers.onEnd(outcome, error);
  }
}
