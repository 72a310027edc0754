// exec: round trip of /bin/true, 1 GiB of output, and what a neighbour feels while another sandbox misbehaves.
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Sandbox } from "@dsec/libdsec";
import { attackers } from "./support/attackers.ts";
import { BenchDocument, median, progress, quantile } from "./support/document.ts";
import { options } from "./support/options.ts";
import { BenchPlatform, environment } from "./support/platform.ts";
import { inFlight } from "./support/run.ts";

const { json, quick } = options();
const document = new BenchDocument("exec");
await using platform = await BenchPlatform.start();
await platform.environment();
const { client } = platform;
const memoryBefore = platform.serverMemoryMiB();

async function roundTrip(sandbox: Sandbox): Promise<number> {
  const start = performance.now();
  const result = await sandbox.exec(["/bin/true"]);
  if (result.exitCode !== 0) throw new Error(`/bin/true gave ${JSON.stringify(result)}`);
  return performance.now() - start;
}

{
  await using sandbox = await client.runContainer(environment);
  for (let i = 0; i < 50; i++) await roundTrip(sandbox);
  const alone: number[] = [];
  for (let i = 0; i < (quick ? 100 : 2000); i++) alone.push(await roundTrip(sandbox));
  document.add("exec.p50", quantile(alone, 0.5), "ms", "< 2.5");
  document.add("exec.p99", quantile(alone, 0.99), "ms");
}

{
  const sandboxes: Sandbox[] = [];
  await inFlight(
    32,
    { count: quick ? 10 : 100 },
    async () => void sandboxes.push(await client.runContainer(environment)),
  );
  const latencies: number[] = [];
  const { done, seconds } = await inFlight(32, { count: quick ? 200 : 10_000 }, async (i) => {
    const sandbox = sandboxes[i % sandboxes.length];
    if (sandbox) latencies.push(await roundTrip(sandbox));
  });
  document.add("exec.rate.c32", done / seconds, "1/s");
  document.add("exec.p50.c32", quantile(latencies, 0.5), "ms");
  document.add("exec.p99.c32", quantile(latencies, 0.99), "ms");
  await Promise.all(sandboxes.map((sandbox) => sandbox.stop()));
}

{
  await using sandbox = await client.runContainer(environment);
  const bytes = quick ? 2 ** 26 : 2 ** 30;
  const zeros = createHash("sha256");
  const block = Buffer.alloc(2 ** 20);
  for (let i = 0; i < bytes; i += block.length) zeros.update(block);
  const wanted = zeros.digest("hex");
  const rates: number[] = [];
  for (let round = 0; round < (quick ? 1 : 3); round++) {
    const chunks: Uint8Array[] = [];
    const start = performance.now();
    let got = 0;
    for await (const event of sandbox.stream(["dd", "if=/dev/zero", "bs=128k", `count=${bytes / 131072}`])) {
      if (event.stream !== "stdout") continue;
      got += event.data.length;
      chunks.push(event.data);
    }
    rates.push(got / 1e6 / ((performance.now() - start) / 1000));
    // The digest is checked outside the window: hashing is the bench's work, not the platform's.
    const digest = createHash("sha256");
    for (const chunk of chunks) digest.update(chunk);
    if (got !== bytes || digest.digest("hex") !== wanted) throw new Error(`${got} of ${bytes} bytes, or other bytes`);
  }
  document.add("exec.output.rate", median(rates), "MB/s", ">= 400");
  let growth = 0;
  for (const [name, now] of platform.serverMemoryMiB()) {
    const before = memoryBefore.get(name);
    if (before !== undefined) growth = Math.max(growth, now - before);
  }
  document.add("exec.output.growth", growth, "MiB", "<= 64");
}

{
  await using neighbour = await client.runContainer(environment);
  let worst = 0;
  for (const [name, attack] of attackers) {
    await using attacker = await client.runContainer(environment);
    const stop = new AbortController();
    const attacking = attack(attacker, stop.signal).catch((error: unknown) => {
      progress(`${name}: ${error instanceof Error ? error.message : String(error)}`);
    });
    await sleep(500);
    const latencies: number[] = [];
    const until = performance.now() + (quick ? 2_000 : 20_000);
    while (performance.now() < until || latencies.length < (quick ? 20 : 500))
      latencies.push(await roundTrip(neighbour));
    stop.abort();
    const p99 = quantile(latencies, 0.99);
    document.add(`exec.neighbour.p99.${name}`, p99, "ms");
    worst = Math.max(worst, p99);
    await attacker.stop();
    await attacking;
  }
  document.add("exec.neighbour.p99", worst, "ms", "< 50");
}
document.print(json);
