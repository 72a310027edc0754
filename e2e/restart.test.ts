// The edge, and then hostd, killed at random moments: every sandbox and command goes on, every byte and code is right.
import { setTimeout as sleep } from "node:timers/promises";
import type { CommandResult, DSecClient, Sandbox } from "@dsec/libdsec";
import { afterAll, beforeAll, expect, test } from "vitest";
import { importBase } from "./support/environment.ts";
import { Platform } from "./support/platform.ts";
import { scale, seed, seeded } from "./support/scale.ts";

let platform: Platform;
let client: DSecClient;
const sandboxes: Sandbox[] = [];
const count = scale(200, 20);
const kills = scale(50, 6);

beforeAll(async () => {
  platform = await Platform.start();
  client = platform.client();
  await importBase(client);
  for await (const made of client.runContainers({ count, containerImage: "base", timeoutMs: 120_000 })) {
    if (!made.sandbox) throw made.error;
    sandboxes.push(made.sandbox);
  }
}, 300_000);
afterAll(() => platform?.[Symbol.asyncDispose]());

const lines = (n: number) => Array.from({ length: n }, (_, i) => `line ${i}\n`).join("");

test("counted lines and codes survive kills of edge and hostd", { timeout: 1_800_000 }, async () => {
  const random = seeded(seed);
  const edge = platform.edges[0] ?? "";
  for (const victim of [`edge-${edge}`, `hostd-${edge}`]) {
    for (let round = 0; round < kills / 2; round++) {
      const many = 20 + Math.floor(random() * 30);
      const running: Promise<CommandResult>[] = sandboxes.map((sandbox, i) =>
        sandbox.runShell(`for ((i = 0; i < ${many}; i++)); do echo "line $i"; sleep 0.05; done; exit ${i % 200}`, {
          timeoutMs: 120_000,
        }),
      );
      await sleep(random() * 1_500);
      await platform.kill(victim);
      await sleep(random() * 500);
      await platform.startProgram(victim);
      const results = await Promise.all(running);
      results.forEach((result, i) => {
        expect({ code: result.exitCode, out: result.stdout, err: result.stderr }, `seed ${seed}`).toEqual({
          code: i % 200,
          out: lines(many),
          err: "",
        });
      });
    }
  }
  const states = await Promise.all(sandboxes.map(async (sandbox) => (await sandbox.info()).state));
  expect(new Set(states)).toEqual(new Set(["RUNNING"]));
});

test("a session keeps its state across a kill of the edge", async () => {
  const sandbox = sandboxes[0] as Sandbox;
  const session = await sandbox.session();
  await session.run("cd /tmp; export KEPT=yes; count() { echo $KEPT $PWD; }");
  await platform.kill(`edge-${platform.edges[0]}`);
  await platform.startProgram(`edge-${platform.edges[0]}`);
  const result = await session.run("count");
  expect(result.stdout).toBe("yes /tmp\n");
  await session.close();
});

test("stop works on a sandbox made before the kill, and leaves a tombstone", async () => {
  const sandbox = sandboxes.pop() as Sandbox;
  await platform.kill(`hostd-${platform.edges[0]}`);
  await platform.startProgram(`hostd-${platform.edges[0]}`);
  await sandbox.stop();
  await expect(sandbox.exec(["/bin/true"])).rejects.toMatchObject({ reason: "SANDBOX_ENDED" });
});
