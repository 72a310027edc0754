// create: how fast sandboxes become ready, alone, in a burst and in turn; beside docker, runc and the bare kernel.
import { setTimeout as sleep } from "node:timers/promises";
import type { Sandbox } from "@dsec/libdsec";
import { bareKernelRate } from "./support/bare.ts";
import { Docker } from "./support/docker.ts";
import { BenchDocument, median, progress, quantile } from "./support/document.ts";
import { options } from "./support/options.ts";
import { BenchPlatform, environment } from "./support/platform.ts";
import { inFlight } from "./support/run.ts";
import { runcRate } from "./support/runc.ts";

const { json, quick } = options();
const count = quick ? 100 : 2000;
const churnMs = quick ? 3_000 : 60_000;
const document = new BenchDocument("create");

await using platform = await BenchPlatform.start();
const { tar } = await platform.environment();
const { client } = platform;

const create = async (): Promise<Sandbox> => {
  const sandbox = await client.runContainer({ ...environment, timeoutMs: 60_000 });
  const result = await sandbox.exec(["/bin/true"]);
  if (result.exitCode !== 0) throw new Error(`/bin/true gave ${JSON.stringify(result)}`);
  return sandbox;
};

/** Creates `many` from none, `width` in flight; stops them outside the window. */
async function burst(width: number, many: number): Promise<{ rate: number; latencies: number[] }> {
  const alive: Sandbox[] = [];
  const latencies: number[] = [];
  const { done, seconds } = await inFlight(width, { count: many }, async () => {
    const start = performance.now();
    alive.push(await create());
    latencies.push(performance.now() - start);
  });
  progress(`${done} sandboxes in ${seconds.toFixed(1)} s, ${width} in flight; stopping them`);
  await stopAll(alive);
  return { rate: done / seconds, latencies };
}

async function stopAll(alive: Sandbox[]): Promise<void> {
  await inFlight(32, { count: alive.length }, async (i) => {
    await alive[i]?.stop();
  });
  await sleep(1_000);
}

async function churn(width: number, forMs: number): Promise<number> {
  const { done, seconds } = await inFlight(width, { untilMs: performance.now() + forMs }, async () => {
    const sandbox = await create();
    await sandbox.stop();
  });
  return done / seconds;
}

await burst(8, 50);
for (const width of [1, 32, 128]) {
  const { rate, latencies } = await burst(width, width === 1 ? Math.min(count, 500) : count);
  document.add(`create.rate.c${width}`, rate, "1/s", width === 32 ? ">= 300" : undefined);
  document.add(`create.p50.c${width}`, quantile(latencies, 0.5), "ms", width === 1 ? "< 8" : undefined);
  document.add(`create.p95.c${width}`, quantile(latencies, 0.95), "ms");
  document.add(`create.p99.c${width}`, quantile(latencies, 0.99), "ms");
}

// Ours and docker's churn take turns, so that drift of the machine meets both.
const docker = await Docker.start();
const ours: number[] = [];
const theirs: number[] = [];
if (docker) {
  await using _ = docker;
  await docker.importImage(tar, "bench");
  await docker.runOnce("bench", "/bin/true");
  for (let round = 0; round < (quick ? 1 : 3); round++) {
    const turns = [
      async () => void ours.push(await churn(32, churnMs / (quick ? 1 : 3))),
      async () => {
        const until = performance.now() + churnMs / (quick ? 1 : 3);
        const { done, seconds } = await inFlight(32, { untilMs: until }, () => docker.runOnce("bench", "/bin/true"));
        theirs.push(done / seconds);
      },
    ];
    for (const turn of round % 2 === 0 ? turns : turns.reverse()) await turn();
  }
} else {
  ours.push(await churn(32, churnMs));
}
document.add("create.churn.c32", median(ours), "1/s", ">= 200");
if (theirs.length > 0) {
  document.add("create.rate.docker", median(theirs), "1/s");
  document.add("create.ratio.docker", median(ours) / median(theirs), "ratio", ">= 30");
}

const others: Sandbox[] = [];
await inFlight(32, { count: quick ? 50 : 1000 }, async () => void others.push(await create()));
const crowded = await churn(32, churnMs / 2);
document.add("create.churn.alive1000", crowded / median(ours), "ratio", ">= 0.5");
await stopAll(others);

const runc = await runcRate(tar, platform.dir, quick ? 2_000 : 20_000);
if (runc !== undefined) document.add("create.rate.runc", runc, "1/s");
const bare = await bareKernelRate(platform.dir, quick ? 2_000 : 10_000);
if (bare !== undefined) document.add("create.rate.bare", bare, "1/s");
document.print(json);
