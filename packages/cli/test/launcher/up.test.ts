// The platform on a data directory of its own, started and ended as a user would.
import { createReadStream, existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { DSecClient } from "@dsec/libdsec";
import { describe, expect, test } from "vitest";
import { baseTar, makeBaseTar } from "../../../../e2e/support/environment.ts";
import { cgroupsOf, processesOf } from "../../src/up/ending.ts";
import { uidOf } from "../../src/up/processes.ts";
import { readRanges } from "../../src/up/ranges.ts";
import type { Status } from "../../src/up/status-command.ts";
import { OwnPlatform, root, run } from "./support.ts";

const built = existsSync(join(root, "native/target/release/hostd"));

async function statusOf(platform: OwnPlatform): Promise<Status> {
  return JSON.parse((await platform.dsec("status", "--json")).stdout) as Status;
}

async function until<T>(what: () => Promise<T | undefined | false>): Promise<T> {
  for (let tries = 0; ; tries += 1) {
    const value = await what();
    if (value) return value;
    if (tries > 600) throw new Error("it did not come about");
    await sleep(200);
  }
}

const pidOf = (status: Status, name: string) =>
  status.platform?.processes.find((one) => one.name.startsWith(name))?.pid ?? 0;

/** Numbers of the slots that have cgroups. */
function slotGroups(edge: string): string[] {
  return ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"]
    .flatMap((root) => (existsSync(join(root, "dsec", edge)) ? readdirSync(join(root, "dsec", edge)) : []))
    .filter((name) => /^\d+$/.test(name));
}

/** Each start copies the servers; other tests run at the same time. */
const guard = { timeout: 300_000 };

describe.runIf(process.getuid?.() === 0 && built)("up", guard, () => {
  test("starts, attaches, mends what dies, ends and leaves only the data", async () => {
    await using platform = await OwnPlatform.prepare();
    const first = await platform.up();
    expect(first.stderr).toContain("starting hostd-");
    expect(first.status).toBe(0);
    expect(first.stdout).toContain(`up: http://127.0.0.1:${platform.port}`);

    const config = join(platform.dir, "config/dsec/config.json");
    expect(statSync(config).mode & 0o777).toBe(0o600);
    expect(platform.settings.endpoint).toBe(`http://127.0.0.1:${platform.port}`);
    expect(platform.settings.apiKey).toMatch(/^dsec_/);
    expect(statSync(platform.dataDir).mode & 0o7).toBe(0);
    expect(statSync(join(platform.dataDir, "secrets")).mode & 0o777).toBe(0o700);
    // What root runs must not be writable for the servers' user.
    for (const name of ["", "app", "settings"]) expect(statSync(join(platform.dataDir, name)).uid).toBe(0);
    for (const log of readdirSync(join(platform.dataDir, "logs"))) {
      expect(readFileSync(join(platform.dataDir, "logs", log), "utf8")).not.toContain(platform.settings.apiKey);
    }

    const before = await statusOf(platform);
    expect(before).toMatchObject({ up: true, state: "up", answers: true });
    expect(uidOf(pidOf(before, "hostd"))).toBe(0);
    for (const name of ["edge", "apiserver"]) expect(uidOf(pidOf(before, name))).not.toBe(0);

    const again = await platform.up();
    expect(again.status).toBe(0);
    expect(again.stdout).toContain(`up already (PID ${before.platform?.pid}, started from `);
    const other = await platform.dsec("up", "--detach", "--port", String(platform.port + 1));
    expect(other.status).toBe(1);
    expect(other.stderr).toContain(`in use by PID ${before.platform?.pid}`);
    expect(other.stderr).toContain("dsec down");

    for (const name of ["apiserver", "edge", "hostd"]) process.kill(pidOf(before, name), "SIGKILL");
    const after = await until(async () => {
      const now = await statusOf(platform);
      return (
        now.state === "up" &&
        pidOf(now, "hostd") !== pidOf(before, "hostd") &&
        pidOf(now, "edge") !== pidOf(before, "edge") &&
        now
      );
    });
    expect(after.platform?.processes.every((one) => one.restarts === 1)).toBe(true);

    const edge = before.platform?.edges[0]?.edge ?? "";
    // Slots are made ready while nothing else is to do; a hostd that was killed meanwhile goes on with it.
    const madeSlots = () => new Set(slotGroups(edge)).size;
    await until(async () => madeSlots() === 64);
    const down = await platform.dsec("down");
    expect(down.status).toBe(0);
    expect(existsSync(before.platform?.runDir ?? "")).toBe(false);
    expect(cgroupsOf(edge)).toEqual([]);
    expect(readRanges().some((range) => range.dataDir === platform.dataDir)).toBe(false);
    expect((await statusOf(platform)).state).toBe("down");
    expect((await platform.dsec("down")).status).toBe(0);

    expect((await platform.up()).status).toBe(0);
    expect((await statusOf(platform)).platform?.edges[0]?.edge).toBe(edge);
  });

  test("two at once become one platform, and a second clone finds it", async () => {
    await using platform = await OwnPlatform.prepare();
    const both = await Promise.all([platform.up(), platform.up()]);
    expect(both.map(({ status }) => status)).toEqual([0, 0]);
    expect(both.filter(({ stdout }) => stdout.startsWith("up already"))).toHaveLength(1);
    const clone = await run(
      process.execPath,
      [join(root, "packages/cli/src/launcher-main.ts"), "up", "--detach", "--data-dir", platform.dataDir],
      { ...platform.env, DSEC_ROOT: "/srv/another clone" },
    );
    expect(clone.status).toBe(0);
    expect(clone.stdout).toContain(`started from ${root}`);
  });

  test("several edges have names and ranges of their own", async () => {
    await using platform = await OwnPlatform.prepare();
    expect((await platform.up("--edges", "3")).status).toBe(0);
    const { platform: state } = await statusOf(platform);
    const edges = state?.edges ?? [];
    expect(new Set(edges.map(({ edge }) => edge)).size).toBe(3);
    const starts = edges.map(({ uidStart }) => uidStart).sort((a, b) => a - b);
    for (const [index, start] of starts.entries()) {
      const next = starts[index + 1];
      if (next !== undefined) expect(next).toBeGreaterThanOrEqual(start + 64 * 65_537);
    }
  });

  test("in the foreground, Ctrl-C ends the servers in order", async () => {
    await using platform = await OwnPlatform.prepare();
    const { spawn } = await import("node:child_process");
    const args = ["up", "--data-dir", platform.dataDir, "--slots", "64", "--port", String(platform.port)];
    const child = spawn(process.execPath, [join(root, "packages/cli/src/launcher-main.ts"), ...args], {
      env: platform.env,
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    child.stdout.on("data", (data: Buffer) => {
      output += data;
    });
    child.stderr.resume();
    const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
    await until(async () => output.includes("Ctrl-C ends the servers"));
    const { platform: state } = await statusOf(platform);
    child.kill("SIGINT");
    expect(await ended).toBe(0);
    for (const { pid } of state?.processes ?? []) expect(existsSync(`/proc/${pid}`)).toBe(false);
  });

  test("down ends sandboxes, also where the servers were killed before", async () => {
    await makeBaseTar();
    await using platform = await OwnPlatform.prepare();
    expect((await platform.up()).status).toBe(0);
    const client = new DSecClient(platform.settings);
    await client.layers.import({ kind: "base", name: "base", body: createReadStream(baseTar) });
    const sandbox = await client.runContainer({ containerImage: "base" });
    await sandbox.start(["sleep", "1000"]);
    client.close();
    const { platform: state } = await statusOf(platform);
    const edge = state?.edges[0]?.edge ?? "";
    expect(processesOf(edge).length).toBeGreaterThanOrEqual(3);
    process.kill(state?.pid ?? 0, "SIGKILL");
    for (const { pid } of state?.processes ?? []) process.kill(pid, "SIGKILL");
    const down = await platform.dsec("down");
    expect(down.stderr).toMatch(/ended \d+ processes that were left/);
    expect(down.status).toBe(0);
    expect(processesOf(edge)).toEqual([]);
    expect(cgroupsOf(edge)).toEqual([]);
    expect(existsSync(state?.runDir ?? "")).toBe(false);
  });
});
