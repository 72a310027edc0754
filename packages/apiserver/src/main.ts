// `node packages/apiserver/src/main.ts --config FILE`
import { parseArgs } from "node:util";
import { destination, pino } from "pino";
import { startApiserver } from "./apiserver.ts";
import { readSettings } from "./settings.ts";

const { values } = parseArgs({ options: { config: { type: "string" } } });
if (values.config === undefined) {
  process.stderr.write("usage: main.ts --config FILE\n");
  process.exit(2);
}

const log = pino({ name: "apiserver" }, destination(2));
try {
  const settings = readSettings(values.config);
  log.level = settings.logLevel;
  const apiserver = await startApiserver(settings, log);
  let stopping = false;
  const stop = (signal: string) => {
    if (stopping) return;
    stopping = true;
    log.info({ signal }, "stopping");
    apiserver.stop().then(
      () => process.exit(0),
      (error) => {
        log.error({ err: error }, "did not stop cleanly");
        process.exit(1);
      },
    );
  };
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
  process.stdout.write(`${JSON.stringify({ ready: true, port: apiserver.port })}\n`);
} catch (error) {
  log.fatal({ err: error }, error instanceof Error ? error.message : "could not start");
  process.exit(1);
}
