import type { Command } from "commander";
import { withClient } from "../client.ts";
import { argsFrom, type CreateFlags, withCreateOptions } from "../create-options.ts";
import { note } from "../output.ts";
import { ExitError } from "../report.ts";

const sandboxId = /^[a-z][a-z0-9]{0,11}[a-z2-7]{20}$/;

export function registerShell(program: Command): void {
  withCreateOptions(program.command("shell"))
    .description("an interactive terminal in a sandbox, or in a new one that ends with it")
    .argument("<id|image>", "sandbox, or image for a new one")
    .addHelpText(
      "after",
      "\nExamples:\n  dsec shell $id\n  dsec shell debian --toolkit pytest\n  echo 'uname -a; exit' | dsec shell debian",
    )
    .action(async (target: string, flags: CreateFlags) => {
      const { runTerminal } = await import("../raw-terminal.ts");
      const { untilInterrupted } = await import("../run-command.ts");
      const interrupted = untilInterrupted();
      const { signal } = interrupted;
      try {
        process.exitCode = await withClient(async (client) => {
          if (sandboxId.test(target)) {
            const options = { user: flags.user, cwd: flags.workdir, env: flags.env, signal };
            return await runTerminal(client.sandbox(target), undefined, options);
          }
          await using sandbox = await client.runContainer({ ...argsFrom(target, flags), signal });
          note(`sandbox ${sandbox.id}`);
          return await runTerminal(sandbox, undefined, { signal });
        });
      } catch (error) {
        const code = interrupted.code();
        if (code === undefined) throw new ExitError(125, error);
        process.exitCode = code;
      } finally {
        process.stdin.destroy();
      }
    });
}
