// The detached supervisor: started by `up --detach`, ended by SIGTERM from `down`.
import { DsecError } from "@dsec/api";
import type { UpOptions } from "./layout.ts";
import { AlreadyUp, Supervisor } from "./supervisor.ts";
import type { Message } from "./up-command.ts";

const tell = (message: Message) => {
  // The command that started us may be gone by Ctrl-C; the platform goes on.
  if (process.connected) process.send?.(message, undefined, undefined, () => {});
};

let supervisor: Supervisor | undefined;
let asked = false;
const end = async () => {
  asked = true;
  if (!supervisor) return;
  await supervisor.stop();
  process.exit(0);
};
for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => void end());
process.on("SIGHUP", () => {});
process.on("disconnect", () => {});

try {
  supervisor = await Supervisor.start(JSON.parse(process.argv[2] ?? "{}") as UpOptions, (progress) =>
    tell({ progress }),
  );
  if (asked) await end();
  tell({ ready: true });
  if (process.connected) process.disconnect();
} catch (error) {
  if (error instanceof AlreadyUp) {
    tell({ already: true });
  } else {
    const { reason, message } = DsecError.from(error);
    console.error(error);
    tell({ failed: { reason, message } });
  }
  process.exitCode = 1;
  if (process.connected) process.disconnect();
}
