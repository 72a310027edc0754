// memory: what one idle sandbox costs the host, everything counted, with 1,000 alive.
import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { Sandbox } from "@dsec/libdsec";
import { availableMemoryMiB, BenchDocument, progress } from "./support/document.ts";
import { options } from "./support/options.ts";
import { BenchPlatform, environment } from "./support/platform.ts";
import { inFlight } from "./support/run.ts";

const { json, quick } = options();
const count = quick ? 100 : 1000;
const document = new BenchDocument("memory");
// What an empty slot takes counts too, so none is made ahead.
await using platform = await BenchPlatform.start("--ready-slots", "0");
await platform.environment();

async function settledMiB(): Promise<number> {
  await sleep(3_000);
  writeFileSync("/proc/sys/vm/drop_caches", "3");
  await sleep(1_000);
  return availableMemoryMiB();
}

// The layers are mounted and every code path has run before the first reading.
for (let i = 0; i < 20; i++) {
  await using sandbox = await platform.client.runContainer(environment);
  await sandbox.exec(["/bin/true"]);
}
const serversBefore = platform.serverMemoryMiB();
const before = await settledMiB();
const alive: Sandbox[] = [];
await inFlight(16, { count }, async () => {
  const sandbox = await platform.client.runContainer({ ...environment, timeoutMs: 60_000 });
  const result = await sandbox.exec(["/bin/true"]);
  if (result.exitCode === 0) alive.push(sandbox);
});
const after = await settledMiB();
let answered = 0;
await inFlight(32, { count: alive.length }, async (i) => {
  if ((await alive[i]?.exec(["/bin/true"]))?.exitCode === 0) answered++;
});
document.add("memory.idle", (before - after) / alive.length, "MiB", "<= 1.5");
document.add("memory.alive", answered, "count", quick ? undefined : ">= 1000");
for (const [name, now] of platform.serverMemoryMiB()) {
  const then = serversBefore.get(name);
  if (then !== undefined) progress(`${name}: ${then.toFixed(0)} → ${now.toFixed(0)} MiB`);
}
await inFlight(32, { count: alive.length }, async (i) => void (await alive[i]?.stop()));
document.print(json);
