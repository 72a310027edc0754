// A shell session: directory, variables and functions last from call to call.
import { SessionService } from "@dsec/api";
import { runCommand } from "./command.ts";
import type { ExecOptions } from "./command-options.ts";
import type { CommandResult } from "./results.ts";
import type { Calls } from "./transport/calls.ts";

export interface SessionOptions {
  /** [A-Za-z0-9_-]{1,64}; an open one of that ID is taken up. Default: a random one. */
  sessionId?: string | undefined;
  cwd?: string | undefined;
  env?: Record<string, string> | undefined;
  secretEnv?: Record<string, string> | undefined;
  user?: string | undefined;
}

/** What a call in a session may say; directory, user and environment are the session's. */
export type SessionRunOptions = Omit<ExecOptions, "user" | "pty">;

export class Session implements AsyncDisposable {
  readonly id: string;
  readonly sandboxId: string;
  readonly #calls: Calls;

  constructor(calls: Calls, sandboxId: string, id: string) {
    this.#calls = calls;
    this.sandboxId = sandboxId;
    this.id = id;
  }

  /** Runs shell text in the session's shell. One call at a time: SESSION_BUSY for a second one. */
  run(text: string, options: SessionRunOptions = {}): Promise<CommandResult> {
    return runCommand(this.#calls, this.sandboxId, { shell: text }, options, this.id);
  }

  /** Ends every process that the session started. */
  async close(): Promise<void> {
    await this.#calls.call(
      SessionService.method.closeSession,
      { sandboxId: this.sandboxId, sessionId: this.id },
      { sandboxId: this.sandboxId },
    );
  }

  /** Closes it; one that is gone already is no error. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close().catch((error) => {
      if (!["SESSION_NOT_FOUND", "SANDBOX_ENDED", "SANDBOX_NOT_FOUND", "SANDBOX_STOPPED"].includes(error?.reason))
        throw error;
    });
  }
}
