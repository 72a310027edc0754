import { spawn } from "node:child_process";

export interface Ended {
  /** Exit status; 128 + n for a signal, 127 where the program is missing. */
  readonly status: number;
  /** stdout and stderr as they came. */
  readonly output: string;
}

export interface RunOptions {
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
  /** Shown as it comes, for what takes long. */
  readonly show?: boolean;
  /** A hang-guard: the process group is killed after it. */
  readonly withinMs?: number;
}

/** Runs a program to its end. */
export function run(file: string, args: readonly string[], options: RunOptions): Promise<Ended> {
  return new Promise((resolve) => {
    const child = spawn(file, args, {
      cwd: options.cwd,
      env: options.env,
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    });
    let output = "";
    const take = (data: Buffer) => {
      output += data.toString("utf8");
      if (options.show) process.stdout.write(data);
    };
    child.stdout.on("data", take);
    child.stderr.on("data", take);
    const endGroup = () => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
      } catch {
        // It has ended.
      }
    };
    const timer = setTimeout(() => {
      output += `\nended after ${(options.withinMs ?? 0) / 1000} s\n`;
      endGroup();
    }, options.withinMs ?? 3_600_000);
    // Ctrl-C on the suite reaches its children too, which are in groups of their own.
    const onSignal = () => {
      endGroup();
      process.exit(130);
    };
    process.once("SIGINT", onSignal);
    process.once("SIGTERM", onSignal);
    const over = (status: number) => {
      clearTimeout(timer);
      process.off("SIGINT", onSignal);
      process.off("SIGTERM", onSignal);
      resolve({ status, output });
    };
    child.once("error", (error) => {
      output += `${error.message}\n`;
      over(127);
    });
    // What a grandchild that lives on writes later is not waited for: the leftover check reports it.
    child.once("exit", (code, signal) => setTimeout(() => over(code ?? (signal ? 137 : 1)), 50));
  });
}
