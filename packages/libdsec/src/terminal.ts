// An interactive terminal: a command on a PTY, its bytes over a WebSocket. A socket that breaks is opened again at the
// offset reached; keys that were typed meanwhile are kept and sent.
import { fromJson } from "@bufbuild/protobuf";
import { CommandOutcomeSchema, CommandService, DsecError, ErrorInfoSchema } from "@dsec/api";
import WebSocket from "ws";
import { startPrepared } from "./command.ts";
import { type CommandLine, type CommandOptions, prepare } from "./command-options.ts";
import { ConnectionError, cancelled, isInterruption, isReason } from "./errors.ts";
import { type CommandOutcome, outcomeOf } from "./results.ts";
import type { Calls } from "./transport/calls.ts";
import { delay, pause } from "./transport/retry.ts";
import { errorFromWire } from "./transport/wire-error.ts";

export interface TerminalOptions extends Omit<CommandOptions, "stdin" | "stdinOpen" | "pty" | "killOnAbort"> {
  /** Characters; default 24 × 80. */
  rows?: number;
  cols?: number;
  /** Default: the user's login shell where the image has one, else the platform's bash. */
  command?: CommandLine;
}

/** Runs in the platform's own bash: the image may have no shell at all. */
const defaultShell = `s=; if [ -r /etc/passwd ]; then while IFS=: read -r n _ u _ _ _ p; do [ "$u" = "$UID" ] && s=$p && break; done < /etc/passwd; fi
case $s in */nologin|*/false|"") s=;; esac
export TERM="\${TERM:-xterm-256color}"
if [ -n "$s" ] && [ -x "$s" ]; then exec "$s" -l; fi
exec "$BASH" -l -i`;

/** A socket that opened; an object, since a promise of a promise would be waited for. */
interface Opened {
  closed: Promise<void>;
}

export class Terminal implements AsyncDisposable {
  readonly commandId: string;
  /** How it ended. Rejects with a DsecError when the platform lost it. */
  readonly ended: Promise<CommandOutcome>;
  readonly #calls: Calls;
  readonly #id: string;
  #socket: WebSocket | undefined;
  #offset = 0;
  #size: { rows: number; cols: number };
  #typed: Buffer[] = [];
  #closed = false;
  #onData: ((data: Uint8Array) => void) | undefined;
  #early: Buffer[] = [];
  #finish!: (outcome: CommandOutcome) => void;
  #fail!: (error: DsecError) => void;

  /** Made by Sandbox.terminal. */
  constructor(calls: Calls, sandboxId: string, commandId: string, size: { rows: number; cols: number }) {
    this.#calls = calls;
    this.#id = sandboxId;
    this.commandId = commandId;
    this.#size = size;
    this.ended = new Promise((resolve, reject) => {
      this.#finish = resolve;
      this.#fail = reject;
    });
    // Whoever never asks how it ended is not troubled with it.
    this.ended.catch(() => {});
  }

  /** Output, from the first byte on. One listener. */
  onData(listener: (data: Uint8Array) => void): void {
    this.#onData = listener;
    for (const part of this.#early) listener(part);
    this.#early = [];
  }

  /** Input: keys, as bytes or UTF-8. */
  write(data: string | Uint8Array): void {
    const bytes = Buffer.from(data as string);
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(bytes);
    else if (!this.#closed) this.#typed.push(bytes);
  }

  /** New size, in characters. */
  resize(size: { rows: number; cols: number }): void {
    this.#size = size;
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify({ resize: size }));
  }

  /** Leaves the terminal; the command gets a hang-up. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#leave();
    await this.#calls
      .call(
        CommandService.method.signal,
        { sandboxId: this.#id, commandId: this.commandId, signal: "SIGHUP", wholeTree: true },
        { sandboxId: this.#id, signal: AbortSignal.timeout(5000) },
      )
      .catch(() => {});
    this.#fail(cancelled());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Keeps a socket open until the end. Resolves when the first one is. */
  async run(): Promise<void> {
    const first = await this.#open();
    this.#keep(first).catch((error) => this.#over(DsecError.from(error)));
  }

  async #keep(first: Opened): Promise<void> {
    let socket = first;
    while (!this.#closed) {
      await socket.closed;
      let end = 0;
      for (let round = 0; !this.#closed; round++) {
        try {
          socket = await this.#open();
          break;
        } catch (error) {
          const now = performance.now();
          end ||= now + this.#calls.retryMs;
          if (!isInterruption(error) || now > end) throw error;
          await delay(pause(round, error.retryAfterMs));
        }
      }
    }
  }

  #open(): Promise<Opened> {
    const { endpoint, headers } = this.#calls.http.address;
    const url = `${endpoint.replace(/^http/, "ws")}/v1/sandboxes/${encodeURIComponent(this.#id)}/terminal?command_id=${this.commandId}&stdout_offset=${this.#offset}`;
    const socket = new WebSocket(url, {
      headers: { ...headers, "x-dsec-sandbox": this.#id },
      perMessageDeflate: false,
      maxPayload: 16 << 20,
    });
    this.#socket = socket;
    return new Promise((resolve, reject) => {
      socket.on("error", (error) =>
        reject(new ConnectionError(`the terminal's connection failed: ${error.message}`, true, error)),
      );
      socket.on("unexpected-response", (request, response) => {
        const parts: Buffer[] = [];
        response.on("data", (part: Buffer) => parts.push(part));
        response.on("end", () => reject(errorFromWire(Buffer.concat(parts), response.statusCode ?? 0)));
        response.on("error", (error) => reject(new ConnectionError(error.message, true, error)));
        response.on("close", () => request.destroy());
      });
      socket.on("open", () => {
        this.#calls.http.answered = true;
        socket.send(JSON.stringify({ resize: this.#size }));
        for (const part of this.#typed) socket.send(part);
        this.#typed = [];
        resolve({ closed: new Promise((gone) => socket.on("close", () => gone())) });
      });
      socket.on("message", (data: Buffer, binary) => (binary ? this.#output(data) : this.#control(data)));
    });
  }

  #output(data: Buffer): void {
    this.#offset += data.length;
    if (this.#onData) this.#onData(data);
    else this.#early.push(data);
  }

  #control(data: Buffer): void {
    const message = JSON.parse(data.toString("utf8"));
    if (message.gap) this.#offset = Number(message.gap.offset) + Number(message.gap.droppedBytes);
    else if (message.ended) {
      this.#leave();
      this.#finish(outcomeOf(fromJson(CommandOutcomeSchema, message.ended, { ignoreUnknownFields: true })));
    } else if (message.error) {
      const error = DsecError.fromInfo(fromJson(ErrorInfoSchema, message.error, { ignoreUnknownFields: true }));
      if (!isReason(error, "SLOW_READER") && !isInterruption(error)) this.#over(error);
    }
  }

  #leave(): void {
    this.#closed = true;
    this.#socket?.close();
  }

  #over(error: DsecError): void {
    if (this.#closed) return;
    this.#leave();
    this.#fail(error);
  }
}

export async function openTerminal(calls: Calls, sandboxId: string, options: TerminalOptions): Promise<Terminal> {
  const size = { rows: options.rows ?? 24, cols: options.cols ?? 80 };
  const { command = { shell: defaultShell }, ...rest } = options;
  const prepared = prepare(command, { ...rest, pty: size, stdinOpen: true });
  await startPrepared(calls, sandboxId, prepared, options.signal);
  const terminal = new Terminal(calls, sandboxId, prepared.commandId, size);
  options.signal?.addEventListener("abort", () => void terminal.close(), { once: true });
  await terminal.run();
  return terminal;
}
