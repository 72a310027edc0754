import { type ChildProcess, spawn } from "node:child_process";
import type { RotatingLog } from "./rotating-log.ts";

export interface Program {
  readonly name: string;
  readonly file: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
  /** Whom it runs as; absent: as this process. */
  readonly user?: { readonly uid: number; readonly gid: number };
  /** It serves once it printed a line of JSON with `"ready": true`; otherwise this is asked. */
  readonly isReady?: () => boolean;
}

/** What `status` tells of one process. */
export interface WatchedState {
  readonly name: string;
  readonly pid: number;
  readonly state: "starting" | "ready" | "restarting" | "ended";
  readonly restarts: number;
  readonly lastExit: string;
}

const keptTail = 4096;

/** A process that is started again when it ends: at once the first time, then within a second. */
export class Watched {
  readonly program: Program;
  readonly #log: RotatingLog;
  readonly #changed: () => void;
  #child: ChildProcess | undefined;
  #state: WatchedState["state"] = "starting";
  #restarts = 0;
  #quickEnds = 0;
  #lastExit = "";
  #tail = "";
  #stopping = false;
  #timer: NodeJS.Timeout | undefined;
  #waiters: (() => void)[] = [];

  constructor(program: Program, log: RotatingLog, changed: () => void) {
    this.program = program;
    this.#log = log;
    this.#changed = changed;
    this.#start();
  }

  get state(): WatchedState {
    return {
      name: this.program.name,
      pid: this.#child?.pid ?? 0,
      state: this.#state,
      restarts: this.#restarts,
      lastExit: this.#lastExit,
    };
  }

  /** The end of what it wrote to stderr. */
  get tail(): string {
    return this.#tail;
  }

  /** @returns whether it serves; false when it ended `maxEnds` times before or the time is over. */
  async waitReady(timeoutMs: number, maxEnds = 3): Promise<boolean> {
    const end = Date.now() + timeoutMs;
    for (;;) {
      if (this.#state === "ready") return true;
      if (this.#stopping || Date.now() > end || this.#restarts >= maxEnds) return false;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 20);
        this.#waiters.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  /** Ends it, with SIGKILL after `graceMs`. */
  async stop(graceMs = 5000): Promise<void> {
    this.#stopping = true;
    clearTimeout(this.#timer);
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGTERM");
    const timer = setTimeout(() => child.kill("SIGKILL"), graceMs);
    await gone;
    clearTimeout(timer);
  }

  #start(): void {
    const { file, args, cwd, env, user } = this.program;
    const startedAt = Date.now();
    this.#state = "starting";
    const child = spawn(file, args, {
      cwd,
      env,
      // A session of its own, so that Ctrl-C reaches the supervisor alone, which ends the servers in order.
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
      ...(user ? { uid: user.uid, gid: user.gid } : {}),
    });
    this.#child = child;
    this.#askReady(child);
    child.stdout?.on("data", (data: Buffer) => this.#onStdout(data));
    child.stderr?.on("data", (data: Buffer) => this.#keep(data));
    let over = false;
    const ended = (why: string) => {
      if (over) return;
      over = true;
      this.#onEnd(why, Date.now() - startedAt);
    };
    child.once("error", (error) => ended(error.message));
    child.once("exit", (code, signal) => ended(signal ?? `exit code ${code}`));
    this.#notify();
  }

  /** For a program that does not say so itself. */
  #askReady(child: ChildProcess): void {
    const { isReady } = this.program;
    if (!isReady || this.#child !== child || this.#state !== "starting" || this.#stopping) return;
    if (isReady()) this.#ready();
    else setTimeout(() => this.#askReady(child), 10);
  }

  #onStdout(data: Buffer): void {
    this.#keep(data);
    if (this.#state === "starting" && /"ready"\s*:\s*true/.test(data.toString("utf8"))) this.#ready();
  }

  #ready(): void {
    this.#state = "ready";
    this.#notify();
  }

  #keep(data: Buffer): void {
    this.#log.write(data);
    this.#tail = (this.#tail + data.toString("utf8")).slice(-keptTail);
  }

  #onEnd(why: string, livedMs: number): void {
    this.#lastExit = why;
    if (this.#stopping) {
      this.#state = "ended";
      this.#notify();
      return;
    }
    this.#restarts += 1;
    this.#quickEnds = livedMs < 5000 ? this.#quickEnds + 1 : 0;
    this.#state = "restarting";
    const waitMs = Math.min(1000, 50 * 2 ** Math.min(this.#quickEnds, 5));
    this.#log.write(
      `${JSON.stringify({ time: Date.now(), msg: `${this.program.name} ended (${why}); started again in ${waitMs} ms` })}\n`,
    );
    this.#timer = setTimeout(() => this.#start(), waitMs);
    this.#notify();
  }

  #notify(): void {
    this.#changed();
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) waiter();
  }
}
