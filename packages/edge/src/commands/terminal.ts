// A terminal over a WebSocket: binary frames are input and output, text frames JSON. See docs/architecture.md.
import { toJson } from "@bufbuild/protobuf";
import { CommandOutcomeSchema, DsecError, ErrorInfoSchema } from "@dsec/api";
import type { RawData, WebSocket } from "ws";
import type { Output } from "../aether/output.ts";
import { slowReaderMs } from "../http/back-pressure.ts";
import { breakCause } from "../lifecycle/attach.ts";
import type { Core } from "../lifecycle/core.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import { joinParts } from "../wire/frames.ts";
import { AttachedCommand } from "./attached.ts";
import { checkSize } from "./check.ts";

const pauseAbove = 1024 * 1024;
const inputFrame = 512 * 1024;
const largestBacklog = 4 * 1024 * 1024;

export class Terminal {
  private readonly core: Core;
  private readonly sandbox: Sandbox;
  private readonly commandId: string;
  private readonly socket: WebSocket;
  private readonly attached: AttachedCommand;
  private readonly done: () => void;
  private slowTimer: NodeJS.Timeout | undefined;
  private input: Promise<void>;
  private inputOffset = 0n;
  private backlog = 0;
  private finished = false;

  constructor(core: Core, sandbox: Sandbox, commandId: string, stdoutOffset: number, socket: WebSocket) {
    this.core = core;
    this.sandbox = sandbox;
    this.commandId = commandId;
    this.socket = socket;
    this.attached = new AttachedCommand(
      sandbox,
      commandId,
      { stdoutOffset, stderrOffset: 0 },
      {
        onOutput: (output) => this.onOutput(output),
        onEnd: (outcome, error) => {
          if (outcome) this.finish({ ended: toJson(CommandOutcomeSchema, outcome) }, 1000);
          else void this.fail(error ?? new DsecError("INTERNAL", "the supervisor left the command before its end"));
        },
      },
    );
    this.done = sandbox.use();
    socket.on("message", (data, binary) => this.onMessage(data, binary));
    socket.on("error", () => socket.terminate());
    socket.on("close", () => this.onClose());
    // Input goes on where an earlier connection left it.
    this.input = this.send(new Uint8Array(), true).catch(() => {});
  }

  private onOutput(output: Output): void {
    if (output.dropped > 0) {
      this.text({ gap: { offset: String(output.offset - output.dropped), droppedBytes: String(output.dropped) } });
    }
    if (output.length > 0) {
      this.socket.send(joinParts(output.parts, output.length), { binary: true }, () => this.onSent());
    }
    if (this.socket.bufferedAmount < pauseAbove || this.slowTimer) return;
    this.attached.pause();
    this.slowTimer = setTimeout(() => {
      this.attached.detach();
      void this.fail(new DsecError("SLOW_READER", "the terminal's output was not read for 30 s"));
      setTimeout(() => this.socket.terminate(), slowReaderMs).unref();
    }, slowReaderMs);
  }

  private onSent(): void {
    if (!this.slowTimer || this.socket.bufferedAmount >= pauseAbove / 2) return;
    clearTimeout(this.slowTimer);
    this.slowTimer = undefined;
    this.attached.resume();
  }

  private onMessage(data: RawData, binary: boolean): void {
    const bytes = Array.isArray(data) ? Buffer.concat(data) : Buffer.from(data as Buffer);
    if (!binary) {
      this.onText(bytes.toString("utf8"));
      return;
    }
    this.backlog += bytes.length;
    if (this.backlog > largestBacklog) {
      this.attached.detach();
      void this.fail(new DsecError("TOO_MANY_REQUESTS", "the command does not take its input; more than 4 MiB wait"));
      return;
    }
    for (let at = 0; at < bytes.length; at += inputFrame) {
      const piece = bytes.subarray(at, at + inputFrame);
      this.input = this.input.then(async () => {
        await this.send(piece, false);
        this.backlog -= piece.length;
      });
    }
    this.input = this.input.catch((error: unknown) => {
      // A command that ended takes no input; its end is told by itself.
      const known = DsecError.from(error);
      if (known.reason !== "STDIN_CLOSED" && known.reason !== "COMMAND_NOT_FOUND") {
        this.core.log.info({ sandbox: this.sandbox.id, err: known }, "a terminal's input failed");
      }
      this.backlog = 0;
    });
  }

  /** Sends at the offset reached; aether may take less than all, so what is left is sent again. */
  private async send(bytes: Uint8Array, probe: boolean): Promise<void> {
    let rest = bytes;
    while (!this.finished && (probe || rest.length > 0)) {
      const taken = await this.sandbox.running().call(
        {
          case: "input",
          value: {
            commandId: this.commandId,
            offset: this.inputOffset,
            data: rest as Uint8Array<ArrayBuffer>,
            endOfFile: false,
          },
        },
        "input",
      );
      const accepted = Number(taken.acceptedBytes - this.inputOffset);
      this.inputOffset = taken.acceptedBytes;
      if (probe) return;
      rest = rest.subarray(Math.max(0, accepted));
      if (accepted <= 0) await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  private onText(text: string): void {
    void (async () => {
      const size = parseResize(text);
      await this.sandbox.running().call({ case: "resize", value: { commandId: this.commandId, size } }, "done");
    })().catch((error: unknown) => {
      if (this.finished) return;
      this.core.log.info({ sandbox: this.sandbox.id, err: DsecError.from(error) }, "a terminal's resize failed");
    });
  }

  private async fail(error: DsecError): Promise<void> {
    const cause = await breakCause(this.core, this.sandbox, error);
    this.finish({ error: toJson(ErrorInfoSchema, cause.toInfo()) }, 1011);
  }

  private finish(last: unknown, code: number): void {
    if (this.finished) return;
    this.finished = true;
    this.text(last);
    this.socket.close(code);
  }

  private text(value: unknown): void {
    this.socket.send(JSON.stringify(value), { binary: false });
  }

  private onClose(): void {
    this.finished = true;
    clearTimeout(this.slowTimer);
    this.attached.detach();
    this.done();
  }
}

function parseResize(text: string): { rows: number; cols: number } {
  let resize: { rows?: unknown; cols?: unknown } | undefined;
  try {
    resize = (JSON.parse(text) as { resize?: { rows?: unknown; cols?: unknown } }).resize;
  } catch {
    throw new DsecError("INVALID_ARGUMENT", "a text frame of a terminal is no JSON");
  }
  const size = { rows: Number(resize?.rows), cols: Number(resize?.cols) };
  checkSize({ $typeName: "dsec.v1.PtySize", ...size });
  return size;
}
