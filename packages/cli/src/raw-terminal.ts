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
  let last = 0x0a;
  const onInput = (data: Buffer) => {
    last = data.at(-1) ?? last;
    terminal.write(data);
  };
  terminal.onData((data) => stdout.write(data));
  if (stdin.isTTY) stdin.setRawMode(true);
  stdin.on("data", onInput);
  // End of a piped input is the terminal's own end of file. One that comes while the shell changes the terminal's mode is
  // lost, in the middle of a command it ends only that, and in a line that is not ended a shell takes it for a key.
  let ending: NodeJS.Timeout | undefined;
  stdin.once("end", () => {
    terminal.write("\x04");
    ending = setInterval(() => terminal.write(last === 0x0a ? "\x04" : "\n\x04"), 300);
  });
  stdout.on("resize", onResize);
  try {
    return exitCodeOf(await terminal.ended);
  } finally {
    clearInterval(ending);
    stdin.off("data", onInput);
    stdout.off("resize", onResize);
    if (stdin.isTTY) stdin.setRawMode(false);
    stdin.pause();
  }
}
