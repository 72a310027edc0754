import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync, readdirSync, statSync } from "node:fs";
import { DsecError } from "@dsec/api";

/**
 * An flock held by a small child (`flock FILE cat`): Node has no flock of its own, and a descriptor of ours would be
 * inherited by what we start. The child ends with its standard input, so the lock falls when this process dies.
 */
export class HeldLock implements AsyncDisposable {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  /** @param waitSeconds 0: do not wait. @returns undefined when another holds it. */
  static async take(file: string, waitSeconds = 0): Promise<HeldLock | undefined> {
    for (;;) {
      const lock = await HeldLock.#takeOnce(file, waitSeconds);
      if (!lock || isOpenIn(lock.#child.pid, file)) return lock;
      // Its last holder removed the file meanwhile: whoever comes next locks another one.
      await lock.release();
    }
  }

  static async #takeOnce(file: string, waitSeconds: number): Promise<HeldLock | undefined> {
    // Root's alone: a lock file that others can open is one that they can hold.
    closeSync(openSync(file, "a", 0o600));
    const wait = waitSeconds > 0 ? ["-w", String(waitSeconds)] : ["-n"];
    const child = spawn("flock", [...wait, "-E", "75", "-F", file, "cat"], {
      stdio: ["pipe", "pipe", "ignore"],
      detached: true,
    });
    const taken = await new Promise<boolean>((resolve, reject) => {
      child.once("error", (cause) =>
        reject(new DsecError("NODE_UNFIT", "the program `flock` (util-linux) is missing", { cause })),
      );
      child.once("exit", (code) => {
        if (code === 75) resolve(false);
        else reject(new DsecError("NODE_UNFIT", `flock on ${file} failed with ${code}`));
      });
      child.stdin?.on("error", () => {});
      child.stdout?.once("data", () => resolve(true));
      // cat echoes once it runs, that is once the lock is held.
      child.stdin?.write("x");
    });
    if (!taken) return undefined;
    child.removeAllListeners("exit");
    child.unref();
    for (const pipe of [child.stdin, child.stdout]) (pipe as { unref?: () => void } | null)?.unref?.();
    return new HeldLock(child);
  }

  async release(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.ref();
    const gone = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#child.stdin?.end();
    await gone;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}

/** Whether a process has open what is at this path now. */
function isOpenIn(pid: number | undefined, file: string): boolean {
  const there = statSync(file, { throwIfNoEntry: false });
  return readdirSync(`/proc/${pid}/fd`).some((fd) => {
    const open = statSync(`/proc/${pid}/fd/${fd}`, { throwIfNoEntry: false });
    return open !== undefined && open.ino === there?.ino && open.dev === there.dev;
  });
}
