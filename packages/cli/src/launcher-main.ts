// Entry of ./dsec for the commands that work on the machine and the checkout; it loads nothing of the client's part, so
// that they run while that is broken.
import { enableCompileCache } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";

// In the user's own cache: Node's default lies in /tmp, where others could put code for us.
enableCompileCache(join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "dsec", "node"));
const { Command } = await import("commander");
const { DsecError } = await import("@dsec/api");
const { registerLauncherCommands } = await import("./launcher-commands.ts");

const program = new Command("dsec");
registerLauncherCommands(program);
try {
  await program.parseAsync();
} catch (error) {
  if (!(error instanceof DsecError)) throw error;
  console.error(`dsec: ${error.message}`);
  if (error.next) console.error(`  ${error.next}`);
  process.exitCode = 1;
}
