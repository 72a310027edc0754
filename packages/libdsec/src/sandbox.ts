// A sandbox: commands, sessions, files, life.
import {
  CommandService,
  DsecError,
  randomBase32,
  SandboxService,
  SessionService,
  type Sandbox as WireSandbox,
} from "@dsec/api";
import { Command, runCommand, startPrepared, streamCommand } from "./command.ts";
import { type CommandLine, type CommandOptions, type ExecOptions, prepare, wholeNumber } from "./command-options.ts";
import { isSandboxGone } from "./errors.ts";
import { Files } from "./files/files.ts";
import { endReasonName } from "./names.ts";
import type { CommandStream } from "./output-stream.ts";
import { type CommandInfo, type CommandResult, commandInfoOf } from "./results.ts";
import type { NetworkRules } from "./run-args.ts";
import { type Notice, noticeOf, type SandboxInfo, sandboxInfoOf } from "./sandbox-info.ts";
import { Session, type SessionOptions } from "./session.ts";
import { openTerminal, type Terminal, type TerminalOptions } from "./terminal.ts";
import type { Calls } from "./transport/calls.ts";

export interface SandboxEvent {
  at: Date;
  /** "CREATED", "READY", "EXTENDED", "NETWORK_UPDATED", "STOPPING", "ENDED", … */
  type: string;
  /** "" unless it ended. */
  endReason: string;
  message: string;
}

export interface SandboxUsage {
  cpuSeconds: number;
  memoryBytes: number;
  peakMemoryBytes: number;
  diskBytes: number;
  processes: number;
  oomKills: number;
  pidsLimitHits: number;
}

export class Sandbox implements AsyncDisposable {
  readonly id: string;
  /** Read, write, list, move and transfer files. */
  readonly files: Files;
  /** What was asked at the create and could not be honoured; empty on a sandbox from `connect`. */
  readonly notices: readonly Notice[];
  readonly #calls: Calls;

  /** Made by DSecClient. */
  constructor(calls: Calls, id: string, created?: WireSandbox) {
    this.#calls = calls;
    this.id = id;
    this.files = new Files(calls, id);
    this.notices = created?.notices.map(noticeOf) ?? [];
  }

  /** State, limits, clocks and layers. */
  async info(): Promise<SandboxInfo> {
    const { sandbox } = await this.#calls.call(
      SandboxService.method.getSandbox,
      { sandboxId: this.id },
      { sandboxId: this.id },
    );
    return sandboxInfoOf(present(sandbox, this.id));
  }

  /**
   * Runs a program to its end. A command that ran gives a result whatever it returned; only faults of the platform throw.
   * A connection that breaks meanwhile is taken up again, and the command never runs twice.
   */
  exec(argv: readonly (string | Uint8Array)[], options: ExecOptions = {}): Promise<CommandResult> {
    return runCommand(this.#calls, this.id, argv, options);
  }

  /** Runs shell text in a bash of the platform's own (not the image's). */
  runShell(text: string, options: ExecOptions = {}): Promise<CommandResult> {
    return runCommand(this.#calls, this.id, { shell: text }, options);
  }

  /** Runs a command and gives its output as it comes. A slow reader slows the command. */
  stream(line: CommandLine | string, options: CommandOptions = {}): CommandStream {
    return streamCommand(this.#calls, this.id, lineOf(line), options);
  }

  /** Starts a command in the background. It goes on without us, also when the client ends. */
  async start(line: CommandLine | string, options: CommandOptions = {}): Promise<Command> {
    const prepared = prepare(lineOf(line), options);
    await startPrepared(this.#calls, this.id, prepared, options.signal);
    const command = new Command(this.#calls, this.id, prepared.commandId);
    if (prepared.feed !== undefined) {
      // What goes wrong with the input shows in the command's own end.
      command
        .pipeInput(prepared.feed, options.signal ? { signal: options.signal } : {})
        .catch(() => void command.kill().catch(() => {}));
    }
    return command;
  }

  /** A handle of a command that was started earlier, by anyone. Asks nothing of the server. */
  command(id: string): Command {
    return new Command(this.#calls, this.id, id);
  }

  /** The history of commands, oldest first. */
  async *commands(options: { runningOnly?: boolean; pageSize?: number } = {}): AsyncGenerator<CommandInfo, void, void> {
    let pageToken = "";
    do {
      const page = await this.#calls.call(
        CommandService.method.listCommands,
        { sandboxId: this.id, pageSize: options.pageSize ?? 0, pageToken, runningOnly: options.runningOnly ?? false },
        { sandboxId: this.id },
      );
      for (const command of page.commands) yield commandInfoOf(command);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Opens a shell session, or takes up the open one of that ID. */
  async session(options: SessionOptions = {}): Promise<Session> {
    const sessionId = options.sessionId ?? `s${randomBase32(20)}`;
    const { cwd = "", env = {}, secretEnv = {}, user = "" } = options;
    await this.#calls.call(
      SessionService.method.openSession,
      { sandboxId: this.id, sessionId, cwd, env, secretEnv, user },
      { sandboxId: this.id },
    );
    return new Session(this.#calls, this.id, sessionId);
  }

  /** Sessions that are open now. */
  async sessions(): Promise<{ id: string; user: string; openedAt: Date; commandId: string; restarts: number }[]> {
    const { sessions } = await this.#calls.call(
      SessionService.method.listSessions,
      { sandboxId: this.id },
      { sandboxId: this.id },
    );
    return sessions.map((session) => ({
      id: session.sessionId,
      user: session.user,
      openedAt: new Date(Number(session.openedAtMs)),
      commandId: session.commandId,
      restarts: session.restarts,
    }));
  }

  /** An interactive terminal over a WebSocket. */
  terminal(options: TerminalOptions = {}): Promise<Terminal> {
    return openTerminal(this.#calls, this.id, options);
  }

  /** Makes the end of its life the later of what it is and now + `byMs`; gives the end. */
  async extend(byMs: number): Promise<Date> {
    const { expiresAtMs } = await this.#calls.call(
      SandboxService.method.extendSandbox,
      { sandboxId: this.id, byMs: wholeNumber(byMs, "byMs") },
      { sandboxId: this.id },
    );
    return new Date(Number(expiresAtMs));
  }

  /** Ends it and removes its files; with `keepMs` they stay that long. Accepted in every state, also twice. */
  async stop(options: { keepMs?: number; signal?: AbortSignal } = {}): Promise<SandboxInfo> {
    const { sandbox } = await this.#calls.call(
      SandboxService.method.stopSandbox,
      { sandboxId: this.id, keepMs: wholeNumber(options.keepMs, "keepMs") },
      { sandboxId: this.id, signal: options.signal },
    );
    return sandboxInfoOf(present(sandbox, this.id));
  }

  /** Removes it and what `stop` kept. Accepted in every state, also twice. */
  async delete(): Promise<void> {
    await this.#calls.call(SandboxService.method.deleteSandbox, { sandboxId: this.id }, { sandboxId: this.id });
  }

  /** What happened to it, with the reason of its end. */
  async events(): Promise<SandboxEvent[]> {
    const { events } = await this.#calls.call(
      SandboxService.method.listEvents,
      { sandboxId: this.id },
      { sandboxId: this.id },
    );
    return events.map((event) => ({
      at: new Date(Number(event.atMs)),
      type: event.type,
      endReason: endReasonName(event.endReason),
      message: event.message,
    }));
  }

  /** What it uses now, and has used. */
  async usage(): Promise<SandboxUsage> {
    const { usage } = await this.#calls.call(
      SandboxService.method.getUsage,
      { sandboxId: this.id },
      { sandboxId: this.id },
    );
    return {
      cpuSeconds: usage?.cpuSeconds ?? 0,
      memoryBytes: Number(usage?.memoryBytes ?? 0n),
      peakMemoryBytes: Number(usage?.peakMemoryBytes ?? 0n),
      diskBytes: Number(usage?.diskBytes ?? 0n),
      processes: usage?.processes ?? 0,
      oomKills: Number(usage?.oomKills ?? 0n),
      pidsLimitHits: Number(usage?.pidsLimitHits ?? 0n),
    };
  }

  /** Replaces the network rules. `version` must be higher than the last one (default: now), else nothing changes. */
  async updateNetwork(
    rules: NetworkRules,
    version: number = Date.now(),
  ): Promise<{ version: number; notices: Notice[] }> {
    const reply = await this.#calls.call(
      SandboxService.method.updateNetwork,
      { sandboxId: this.id, rules: { allow: rules }, version: wholeNumber(version, "version") },
      { sandboxId: this.id },
    );
    return { version: Number(reply.version), notices: reply.notices.map(noticeOf) };
  }

  /** Stops it; one that has ended already is no error. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop().catch((error) => {
      if (!isSandboxGone(error)) throw error;
    });
  }
}

function lineOf(line: CommandLine | string): CommandLine {
  return typeof line === "string" ? { shell: line } : line;
}

function present(sandbox: WireSandbox | undefined, id: string): WireSandbox {
  if (!sandbox) throw new DsecError("INTERNAL", `the answer about ${id} holds no sandbox`);
  return sandbox;
}
