// Our terminal, joined to one in a sandbox.
import type { CommandLine, Sandbox, TerminalOptions } from "@dsec/libdsec";
import { exitCodeOf } from "./run-command.ts";

/** Until the remote command ends; gives its exit code. */
export async function runTerminal(
  sandbox: Sandbox,
  command: CommandLine | undefined,
  options: TerminalOptions,
): Promise<number> {
  const size = () => ({ rows: process.stdout.rows || 24, cols: process.stdout.columns || 80 });
  const env = { TERM: process.env["TERM"] ?? "xterm-256color", ...options.env };
  const terminal = await sandbox.terminal({ ...options, env, ...size(), ...(command && { command }) });
  const { stdin, stdout } = process;
  const onResize = () => terminal.resize(size());
  const onInput = (data: Buffer) => terminal.write(data);
  terminal.onData((data) => stdout.write(data));
  if (stdin.isTTY) stdin.setRawMode(true);
  stdin.on("data", onInput);
  // End of a piped input is the terminal's own end of file.
  stdin.once("end", () => terminal.write("\x04"));
  stdout.on("resize", onResize);
  try {
    return exitCodeOf(await terminal.ended);
  } finally {
    stdin.off("data", onInput);
    stdout.off("resize", onResize);
    if (stdin.isTTY) stdin.setRawMode(false);
    stdin.pause();
  }
}
