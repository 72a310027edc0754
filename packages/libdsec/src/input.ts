// Standard input sent in pieces, each with its offset, so that a repeated piece does no harm.
import { CommandService } from "@dsec/api";
import type { InputSource } from "./command-options.ts";
import { isReason, isSandboxGone } from "./errors.ts";
import type { Calls } from "./transport/calls.ts";
import { delay } from "./transport/retry.ts";

const pieceBytes = 1 << 20;

export class InputWriter {
  /** Bytes that the command's side has taken. */
  offset = 0;
  readonly #calls: Calls;
  readonly #sandboxId: string;
  readonly #commandId: string;

  constructor(calls: Calls, sandboxId: string, commandId: string) {
    this.#calls = calls;
    this.#sandboxId = sandboxId;
    this.#commandId = commandId;
  }

  /** Resolves when all is taken. @throws DsecError STDIN_CLOSED when the command takes no more. */
  async write(data: Uint8Array | string, endOfFile = false, signal?: AbortSignal): Promise<void> {
    const bytes = typeof data === "string" ? Buffer.from(data) : data;
    let at = 0;
    let idle = 0;
    do {
      const piece = bytes.subarray(at, at + pieceBytes);
      const last = endOfFile && at + piece.length === bytes.length;
      const reply = await this.#calls.call(
        CommandService.method.writeInput,
        {
          sandboxId: this.#sandboxId,
          commandId: this.#commandId,
          offset: BigInt(this.offset),
          data: piece,
          endOfFile: last,
        },
        { sandboxId: this.#sandboxId, signal },
      );
      const taken = Math.max(0, Number(reply.acceptedBytes) - this.offset);
      this.offset += taken;
      at += taken;
      // A full pipe takes nothing: ask again, less and less often.
      idle = taken > 0 || piece.length === 0 ? 0 : Math.min(idle + 1, 6);
      if (idle > 0) await delay(2 ** idle, signal);
    } while (at < bytes.length);
  }

  /** Sends everything and then end of file. A command that stops reading is no error. */
  async feed(source: InputSource, signal: AbortSignal): Promise<void> {
    try {
      if (typeof source === "string" || source instanceof Uint8Array) return await this.write(source, true, signal);
      for await (const part of source) {
        if (signal.aborted) return;
        const bytes = typeof part === "string" ? Buffer.from(part) : part;
        if (bytes.length > 0) await this.write(bytes, false, signal);
      }
      await this.write(new Uint8Array(0), true, signal);
    } catch (error) {
      if (signal.aborted || isReason(error, "STDIN_CLOSED", "COMMAND_NOT_FOUND") || isSandboxGone(error)) return;
      throw error;
    }
  }
}
