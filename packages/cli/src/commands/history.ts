// What ran in a sandbox.
import type { CommandInfo } from "@dsec/libdsec";
import type { Command } from "commander";
import { withClient } from "../client.ts";
import { type PrintOptions, printList } from "../output.ts";

export function registerHistory(program: Command): void {
  program
    .command("commands")
    .description("the history of a sandbox's commands")
    .argument("<id>", "sandbox")
    .option("--running", "only those that run now")
    .option("--json", "as a JSON array")
    .addHelpText("after", "\nExamples:\n  dsec commands $id\n  dsec commands $id --running --json")
    .action((id: string, options: PrintOptions & { running?: boolean }) =>
      withClient(async (client) => {
        const found: CommandInfo[] = [];
        for await (const one of client.sandbox(id).commands({ runningOnly: options.running ?? false })) found.push(one);
        printList(
          found,
          (one) => one.commandId,
          [
            { title: "ID", of: (one) => one.commandId },
            { title: "STATE", of: (one) => one.state },
            { title: "STARTED", of: (one) => one.startedAt.toISOString() },
            { title: "ENDED WITH", of: ended },
            { title: "COMMAND", of: (one) => (one.shell ?? one.argv.join(" ")).slice(0, 80) },
          ],
          options,
        );
      }),
    );

  program
    .command("logs")
    .description("recorded output of a command (default: the last one), followed until it ends")
    .argument("<id>", "sandbox")
    .argument("[command]", "ID from `dsec commands`")
    .option("--no-follow", "only what is recorded now")
    .addHelpText("after", "\nExamples:\n  dsec logs $id\n  dsec logs $id $command --no-follow")
    .action(logs);
}

function ended(one: CommandInfo): string {
  if (!one.outcome) return "";
  if (one.outcome.timedOut) return "timeout";
  return one.outcome.signal ?? String(one.outcome.exitCode ?? "");
}

async function logs(id: string, commandId: string | undefined, options: { follow: boolean }): Promise<void> {
  await withClient(async (client) => {
    const sandbox = client.sandbox(id);
    let wanted = commandId;
    if (wanted === undefined) {
      for await (const one of sandbox.commands()) wanted = one.commandId;
      if (wanted === undefined) return;
    }
    const { passOn } = await import("../run-command.ts");
    const command = sandbox.command(wanted);
    if (!options.follow && (await command.info()).state === "running") {
      // What is recorded comes at once; a running command then falls silent.
      const quiet = new AbortController();
      let timer = setTimeout(() => quiet.abort(), 500);
      try {
        for await (const chunk of command.attach({ signal: quiet.signal })) {
          clearTimeout(timer);
          await passOn(chunk);
          timer = setTimeout(() => quiet.abort(), 200);
        }
      } catch (error) {
        if (!quiet.signal.aborted) throw error;
      } finally {
        clearTimeout(timer);
      }
      return;
    }
    for await (const chunk of command.attach()) await passOn(chunk);
  });
}
