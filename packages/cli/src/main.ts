// Entry of the command line. Definitions are light; what a command needs is loaded when it runs.
import { enableCompileCache } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";

// In the user's own cache: Node's default lies in /tmp, where others could put code for us.
enableCompileCache(join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "dsec", "node"));
const { outputFailed, watchOutput } = await import("./lost-output.ts");
const { buildProgram, launcherNames } = await import("./program.ts");

const first = process.argv.slice(2).find((word) => !word.startsWith("-"));
const program = buildProgram();
// These load more: only where they are run, listed or completed.
const version = process.argv.includes("-V") || process.argv.includes("--version");
if (
  (first === undefined && !version) ||
  first === "help" ||
  first === "completion" ||
  (first !== undefined && launcherNames.includes(first))
) {
  const { registerLauncherCommands } = await import("./launcher-commands.ts");
  registerLauncherCommands(program);
}
watchOutput();
try {
  await program.parseAsync();
} catch (error) {
  const { report } = await import("./report.ts");
  process.exitCode = report(error);
}
if (outputFailed()) process.exitCode = 1;
