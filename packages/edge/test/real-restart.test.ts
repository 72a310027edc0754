// The edge, and hostd, killed while commands run: nothing is lost, nothing is run twice.
import { SandboxState } from "@dsec/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { reasonOf } from "./support/client.ts";
import { until } from "./support/fake-edge.ts";
import { cannotRun, RealNode } from "./support/real-node.ts";

const why = cannotRun();
const counted = (n: number) => `i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; exit ${n}`;
const expected = Array.from({ length: 300 }, (_, i) => `line ${i}\n`).join("");

describe.skipIf(why !== "")(`restarts${why && ` (${why})`}`, () => {
  let node: RealNode;
  beforeAll(async () => {
    node = await RealNode.start();
  });
  afterAll(() => node?.stop());

  for (const victim of ["edge", "hostd", "both"] as const) {
    test(`${victim} killed with commands that run`, async () => {
      const ids = await Promise.all(
        Array.from({ length: 8 }, async () => (await node.create({}, { labels: { victim } })).sandboxId),
      );
      const start = (sandboxId: string, i: number) =>
        node.client.commands.start({
          sandboxId,
          commandId: "count",
          spec: { what: { case: "shell", value: counted(i) } },
        });
      await Promise.all(ids.map(start));
      for (let round = 0; round < 3; round++) {
        if (victim !== "hostd") await node.killEdge();
        if (victim !== "edge") await node.killHostd();
        if (victim !== "edge") node.startHostd();
        if (victim !== "hostd") await node.startEdge();
      }
      const results = await Promise.all(
        ids.map(
          async (sandboxId) =>
            (await node.client.commands.wait({ sandboxId, commandId: "count", waitMs: 60_000n })).result,
        ),
      );
      expect(results.map((r) => r?.outcome?.exitCode)).toEqual(ids.map((_, i) => i));
      for (const result of results) expect(Buffer.from(result?.stdout?.data ?? []).toString()).toBe(expected);
      const info = await node.client.sandboxes.getSandbox({ sandboxId: ids[0] as string });
      expect([info.sandbox?.state, info.sandbox?.labels]).toEqual([SandboxState.RUNNING, { victim }]);
      await Promise.all(ids.map((sandboxId) => node.client.sandboxes.stopSandbox({ sandboxId })));
      await until(() => node.leftProcesses().length === 0, "the end of every process");
      const next = await node.create();
      expect(next.state).toBe(SandboxState.RUNNING);
      await node.client.sandboxes.stopSandbox({ sandboxId: next.sandboxId });
    });
  }

  test("a create that the edge did not live to finish is undone; its key is free", async () => {
    const call = node.create(
      { startCommand: { argv: [], shell: "sleep 1000", readyProbe: "false" } as never },
      { createKey: "unfinished-1" },
    );
    call.catch(() => {});
    await new Promise((resolve) => setTimeout(resolve, 1000));
    await node.killEdge();
    await node.startEdge();
    const { sandboxId } = await node.create({}, { createKey: "unfinished-1" });
    expect((await node.create({}, { createKey: "unfinished-1" })).sandboxId).toBe(sandboxId);
    await node.client.sandboxes.stopSandbox({ sandboxId });
    await node.killEdge();
    await node.startEdge();
    expect(await reasonOf(node.client.sandboxes.getSandbox({ sandboxId }))).toBe("SANDBOX_ENDED");
    expect(await reasonOf(node.create({}, { createKey: "unfinished-1" }))).toBe("SANDBOX_ENDED");
  });

  test("SIGTERM ends the edge alone", async () => {
    const { sandboxId } = await node.create();
    await node.killEdge("SIGTERM");
    expect(node.leftProcesses().length).toBeGreaterThan(0);
    await node.startEdge();
    expect((await node.client.sandboxes.getSandbox({ sandboxId })).sandbox?.state).toBe(SandboxState.RUNNING);
  });
});
