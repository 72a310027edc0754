import type { Command } from "commander";
import { withClient } from "../client.ts";
import { argsFrom, type CreateFlags, withCreateOptions } from "../create-options.ts";
import { note, printOne } from "../output.ts";
import { ExitError } from "../report.ts";
import { milliseconds, pair } from "../values.ts";

interface RunFlags extends CreateFlags {
  tty?: boolean;
  interactive?: boolean;
  timeout?: number;
  keep?: boolean;
}

export function registerRun(program: Command): void {
  withCreateOptions(program.command("run"))
    .description("run a command in a new sandbox; exits with its code (125: a fault of the platform)")
    .argument("<image>", "base or imported image")
    .argument("<command...>", "program and arguments, after --")
    .option("-t, --tty", "on a terminal")
    .option("-i, --interactive", "pass our input, also from a terminal")
    .option("--timeout <time>", "end the command after this time (exit code 124)", milliseconds)
    .option("--rm", "stop the sandbox at the end (the default; for those used to docker)")
    .option("--keep", "leave the sandbox running, and print its ID to stderr")
    .addHelpText(
      "after",
      `
Examples:
  dsec run debian -- uname -a
  dsec run debian --workspace httpx --toolkit pytest --memory 2g -- pytest -q
  tar c . | dsec run debian -- tar tf -
  dsec run -t debian -- bash`,
    )
    .action(async (image: string, command: string[], flags: RunFlags) => {
      process.exitCode = await run(image, command, flags);
    });

  withCreateOptions(program.command("create"))
    .description("create a sandbox and print its ID")
    .argument("<image>", "base or imported image")
    .option("--json", "as JSON")
    .addHelpText(
      "after",
      "\nExamples:\n  id=$(dsec create debian --ttl 1h --label task=42)\n  dsec create debian --workspace httpx --json",
    )
    .action(async (image: string, flags: CreateFlags & { json?: boolean }) => {
      await withClient(async (client) => {
        const sandbox = await client.runContainer(argsFrom(image, flags));
        for (const notice of sandbox.notices) note(`${notice.reason}: ${notice.message}`);
        if (flags.json) printOne({ name: sandbox.id, ...(await sandbox.info()) }, { json: true });
        else console.log(sandbox.id);
      });
    });

  program
    .command("exec")
    .description("run a command in a sandbox; exits with its code (125: a fault of the platform)")
    .argument("<id>", "sandbox")
    .argument("<command...>", "program and arguments, after --")
    .option("-i, --interactive", "pass our input, also from a terminal")
    .option("-t, --tty", "on a terminal")
    .option("-d, --detach", "in the background; prints the command's ID")
    .option("-u, --user <user>", "user, optionally :group")
    .option("--workdir <dir>", "directory to start in")
    .option("-e, --env <NAME=VALUE>", "environment; NAME alone takes ours", pair)
    .option("--secret-env <NAME=VALUE>", "the same, shown nowhere", pair)
    .option("--timeout <time>", "end it after this time (exit code 124)", milliseconds)
    .addHelpText(
      "after",
      "\nExamples:\n  dsec exec $id -- pytest -q\n  dsec exec -it $id -- python3\n  dsec exec -d $id -- ./server --port 8000",
    )
    .action(async (id: string, command: string[], flags: ExecFlags) => {
      process.exitCode = await exec(id, command, flags);
    });
}

async function run(image: string, argv: string[], flags: RunFlags): Promise<number> {
  const { runAttached, untilInterrupted } = await import("../run-command.ts");
  const interrupted = untilInterrupted();
  const { signal } = interrupted;
  try {
    return await withClient(async (client) => {
      const sandbox = await client.runContainer({ ...argsFrom(image, flags), signal });
      for (const notice of sandbox.notices)
        if (notice.reason !== "ONLY_LOOPBACK" || flags.network) note(`${notice.reason}: ${notice.message}`);
      if (flags.keep) process.stderr.write(`${sandbox.id}\n`);
      try {
        if (flags.tty) {
          const { runTerminal } = await import("../raw-terminal.ts");
          return await runTerminal(sandbox, argv, { cwd: flags.workdir, timeoutMs: flags.timeout, signal });
        }
        return await runAttached(sandbox, argv, {
          // Said of this command, a directory that is not there is an error.
          cwd: flags.workdir,
          timeoutMs: flags.timeout,
          signal,
          killOnAbort: true,
          ...(flags.interactive && { passInput: true }),
        });
      } finally {
        if (!flags.keep) await sandbox[Symbol.asyncDispose]();
      }
    });
  } catch (error) {
    const code = interrupted.code();
    if (code !== undefined) return code;
    throw new ExitError(125, error);
  } finally {
    process.stdin.destroy();
  }
}

interface ExecFlags {
  interactive?: boolean;
  tty?: boolean;
  detach?: boolean;
  user?: string;
  workdir?: string;
  env?: Record<string, string>;
  secretEnv?: Record<string, string>;
  timeout?: number;
}

async function exec(id: string, argv: string[], flags: ExecFlags): Promise<number> {
  const { runAttached, untilInterrupted } = await import("../run-command.ts");
  const interrupted = untilInterrupted();
  const options = {
    user: flags.user,
    cwd: flags.workdir,
    env: flags.env,
    secretEnv: flags.secretEnv,
    timeoutMs: flags.timeout,
  };
  try {
    return await withClient(async (client) => {
      const sandbox = client.sandbox(id);
      if (flags.detach) {
        console.log((await sandbox.start(argv, options)).id);
        return 0;
      }
      if (flags.tty) {
        const { runTerminal } = await import("../raw-terminal.ts");
        return await runTerminal(sandbox, argv, { ...options, signal: interrupted.signal });
      }
      const signal = interrupted.signal;
      return await runAttached(sandbox, argv, {
        ...options,
        signal,
        killOnAbort: true,
        ...(flags.interactive && { passInput: true }),
      });
    });
  } catch (error) {
    const code = interrupted.code();
    if (code !== undefined) return code;
    throw new ExitError(125, error);
  } finally {
    process.stdin.destroy();
  }
}
