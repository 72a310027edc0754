// `node main.ts --config FILE`: one edge, until SIGTERM. A sandbox does not notice its coming and going.
import { parseArgs } from "node:util";
import { Edge } from "./edge.ts";
import { NodeLayers } from "./http/layers.ts";
import { collectWhenIdle } from "./idle-memory.ts";
import { LayerStore } from "./layers/index.ts";
import { makeLogger } from "./log.ts";
import { readSettings } from "./settings.ts";

const { values } = parseArgs({ options: { config: { type: "string" } } });
if (values.config === undefined) {
  process.stderr.write("usage: main.ts --config FILE\n");
  process.exit(2);
}
const settings = readSettings(values.config);
const log = makeLogger(settings.edge, settings.logLevel);
process.on("unhandledRejection", (error) => log.error({ err: error }, "a promise was rejected and nobody looked"));
const { dataDir, edge: name, mklayer } = settings;
const store = await LayerStore.open({ dataDir, edge: name, mklayer, log });
const edge = new Edge(settings, new NodeLayers(store), log);
await edge.start();
collectWhenIdle();
process.stdout.write(`${JSON.stringify({ ready: true, edge: name, pid: process.pid })}\n`);

let stopping = false;
async function stop(): Promise<void> {
  if (stopping) return;
  stopping = true;
  await edge.stop();
  log.flush();
  process.exit(0);
}
process.on("SIGTERM", () => void stop());
process.on("SIGINT", () => void stop());
