// Create, exec, stop, again and again: nothing of it is left.
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { DSecClient } from "@dsec/libdsec";
import { afterAll, beforeAll, expect, test } from "vitest";
import { importBase } from "./support/environment.ts";
import { Platform } from "./support/platform.ts";
import { scale } from "./support/scale.ts";

let platform: Platform;
let client: DSecClient;
beforeAll(async () => {
  platform = await Platform.start();
  client = platform.client();
  await importBase(client);
}, 300_000);
afterAll(() => platform?.[Symbol.asyncDispose]());

interface Reading {
  memory: Map<string, number>;
  descriptors: Map<string, number>;
  cgroups: number;
  mounts: number;
  records: number;
  sandboxFiles: number;
  journalBytes: number;
}

function sandboxesDir(): string {
  return join(platform.dir, "data/edges", platform.edges[0] ?? "", "sandboxes");
}

function read(): Reading {
  const edge = platform.edges[0] ?? "";
  const names = [`hostd-${edge}`, `edge-${edge}`, "apiserver-0"];
  const data = join(platform.dir, "data/edges", edge);
  const list = (path: string) => {
    try {
      return readdirSync(path).length;
    } catch {
      return 0;
    }
  };
  const ofEach = (of: (pid: number) => number) => new Map(names.map((name) => [name, of(platform.pid(name))]));
  return {
    memory: ofEach((pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024),
    descriptors: ofEach((pid) => readdirSync(`/proc/${pid}/fd`).length),
    cgroups: list(
      existsSync("/sys/fs/cgroup/memory") ? `/sys/fs/cgroup/memory/dsec/${edge}` : `/sys/fs/cgroup/dsec/${edge}`,
    ),
    mounts: readFileSync(`/proc/${platform.pid(`hostd-${edge}`)}/mountinfo`, "utf8").split("\n").length,
    records: list(join(data, "records")),
    sandboxFiles: list(sandboxesDir()),
    journalBytes: statSync(join(data, "journal")).size,
  };
}

async function rounds(count: number, width: number): Promise<void> {
  let next = 0;
  const lane = async () => {
    while (next++ < count) {
      await using sandbox = await client.runContainer({ containerImage: "base", timeoutMs: 60_000 });
      const result = await sandbox.exec(["/bin/sh", "-c", "echo $0 > /tmp/mine; cat /tmp/mine", String(next)]);
      expect(result.exitCode).toBe(0);
    }
  };
  await Promise.all(Array.from({ length: width }, lane));
}

/** Slots are cleaned and memory is given back once nothing else is to do: a reading that is as the two before, within a minute. */
async function settled(): Promise<Reading> {
  await sleep(scale(12_000, 4_000));
  let reading = read();
  let same = 0;
  for (let i = 0; i < 20 && same < 2; i++) {
    await sleep(3_000);
    const next = read();
    const moved = [...next.memory].some(([name, now]) => Math.abs(now - (reading.memory.get(name) ?? 0)) > now / 100);
    same = moved ? 0 : same + 1;
    reading = next;
  }
  return reading;
}

test("rounds leave nothing behind", { timeout: 1_800_000 }, async () => {
  // More in flight than afterwards, so that as many slots as can be needed have been made.
  await rounds(scale(1_000, 150), 32);
  const before = await settled();
  await rounds(scale(4_000, 150), 8);
  const after = await settled();
  expect(after.cgroups).toBeLessThanOrEqual(before.cgroups);
  expect(after.mounts).toBe(before.mounts);
  expect(after.records).toBe(0);
  // Files are kept to be used again, as many as there were sandboxes at once.
  expect(after.sandboxFiles).toBeLessThanOrEqual(before.sandboxFiles);
  expect(readdirSync(sandboxesDir()).filter((name) => name.endsWith(".json"))).toEqual([]);
  const ended = scale(4_000, 150);
  expect((after.journalBytes - before.journalBytes) / ended).toBeLessThanOrEqual(1024);
  for (const [name, descriptors] of after.descriptors) {
    expect(descriptors, name).toBeLessThanOrEqual(Math.ceil((before.descriptors.get(name) ?? 0) * 1.05) + 2);
  }
  // A garbage-collected heap settles late: short runs only tell that nothing runs away.
  const slack = scale(1.05, 2);
  for (const [name, memory] of after.memory) {
    expect(memory, name).toBeLessThanOrEqual((before.memory.get(name) ?? 0) * slack + scale(0, 64));
  }
});
