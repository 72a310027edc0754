// The tree of commands. Nothing heavy is loaded here.
import { Command } from "commander";
import { registerCp } from "./commands/cp.ts";
import { registerHistory } from "./commands/history.ts";
import { registerIam } from "./commands/iam.ts";
import { registerLayers } from "./commands/layers.ts";
import { registerRun } from "./commands/run.ts";
import { registerSandboxes } from "./commands/sandboxes.ts";
import { registerShell } from "./commands/shell.ts";

/** Commands of launcher-commands.ts. */
export const launcherNames = ["up", "down", "status", "doctor", "quickstart", "test", "bench", "gen", "fmt"];

export function buildProgram(): Command {
  const program = new Command("dsec")
    .description("sandboxes for training and evaluating agents")
    .version("0.1.0")
    .exitOverride()
    .showHelpAfterError("(dsec help COMMAND shows examples)")
    .addHelpText(
      "after",
      "\nThe platform is found by DSEC_ENDPOINT and DSEC_API_KEY, else by ~/.config/dsec/config.json, which `dsec up` writes.",
    );
  registerRun(program);
  registerShell(program);
  registerCp(program);
  registerSandboxes(program);
  registerHistory(program);
  registerLayers(program);
  registerIam(program);
  program
    .command("completion")
    .description("a completion script for a shell")
    .argument("<shell>", "bash, zsh or fish")
    .addHelpText(
      "after",
      "\nExamples:\n  dsec completion bash > /etc/bash_completion.d/dsec\n  source <(dsec completion zsh)\n  dsec completion fish > ~/.config/fish/completions/dsec.fish",
    )
    .action(async (shell: string, _options: unknown, command: Command) => {
      const { completionScript } = await import("./completion.ts");
      const script = completionScript(program, shell);
      if (script === undefined) command.error("error: a shell is wanted: bash, zsh or fish", { exitCode: 2 });
      process.stdout.write(script);
    });
  return program;
}
