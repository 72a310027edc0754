// Entry of ./dsec for the commands that work on the machine and the checkout; it loads nothing of the client's part, so
// that they run while that is broken.
import { DsecError } from "@dsec/api";
import { Command } from "commander";
import { registerLauncherCommands } from "./launcher-commands.ts";

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
