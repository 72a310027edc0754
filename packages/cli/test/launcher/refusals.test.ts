import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import { expect, test } from "vitest";
import { cgroupsOf } from "../../src/up/ending.ts";
import { HeldLock } from "../../src/up/held-lock.ts";
import { placesOf } from "../../src/up/layout.ts";
import { readRanges } from "../../src/up/ranges.ts";
import { OwnPlatform, root, run } from "./support.ts";

const asRoot = test.runIf(process.getuid?.() === 0);

asRoot("a busy port: says which process has it, and leaves no trace", async () => {
  await using platform = await OwnPlatform.prepare();
  const server = await new Promise<Server>((resolve) => {
    const made: Server = createServer().listen(platform.port, "127.0.0.1", () => resolve(made));
  });
  try {
    const { status, stderr } = await platform.up();
    expect(status).toBe(1);
    expect(stderr).toContain(`port ${platform.port} is in use by PID ${process.pid} (`);
    expect(stderr).toContain("--port");
    expect(existsSync(platform.dataDir)).toBe(false);
    expect(readRanges().some((range) => range.dataDir === platform.dataDir)).toBe(false);
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
});

asRoot("a start that fails halfway leaves nothing of the machine reserved", { timeout: 300_000 }, async () => {
  await using platform = await OwnPlatform.prepare();
  mkdirSync(platform.dataDir);
  writeFileSync(join(platform.dataDir, "secrets"), "a file where a folder belongs");
  const { status } = await platform.up();
  expect(status).toBe(1);
  const names = JSON.parse(readFileSync(join(platform.dataDir, "settings/edges.json"), "utf8")) as string[];
  expect(names).toHaveLength(1);
  for (const edge of names) expect(cgroupsOf(edge)).toEqual([]);
  expect(readRanges().some((range) => range.dataDir === platform.dataDir)).toBe(false);
  expect(existsSync(placesOf(platform).runDir)).toBe(false);
  rmSync(join(platform.dataDir, "secrets"));
  expect((await platform.up()).status).toBe(0);
});

asRoot("a run directory that another user made is refused", async () => {
  await using platform = await OwnPlatform.prepare();
  const { runDir } = placesOf(platform);
  mkdirSync(runDir);
  try {
    writeFileSync(join(runDir, "theirs"), "");
    chownSync(runDir, 65534, 65534);
    const { status, stderr } = await platform.up();
    expect(status).toBe(1);
    expect(stderr).toContain(`${runDir} is no directory of root's`);
    expect(readdirSync(runDir)).toEqual(["theirs"]);
  } finally {
    rmSync(runDir, { recursive: true });
  }
});

asRoot("a data directory of a newer version is refused and stays as it is", async () => {
  await using platform = await OwnPlatform.prepare();
  mkdirSync(platform.dataDir);
  writeFileSync(join(platform.dataDir, "VERSION"), "2\n");
  const { status, stderr } = await platform.up();
  expect(status).toBe(1);
  expect(stderr).toContain(`${platform.dataDir} was written by a newer dsec (layout 2; this one knows 1)`);
  expect(stderr).toContain("Use that newer version");
  expect(readdirSync(platform.dataDir)).toEqual(["VERSION"]);
  expect(readFileSync(join(platform.dataDir, "VERSION"), "utf8")).toBe("2\n");
});

asRoot("a VERSION that is no number is refused too", async () => {
  await using platform = await OwnPlatform.prepare();
  mkdirSync(platform.dataDir);
  writeFileSync(join(platform.dataDir, "VERSION"), "x\u001b[31m\n");
  const { status } = await platform.up();
  expect(status).toBe(1);
});

asRoot("a data directory that the servers' user cannot reach: says which folder and what to do", async () => {
  await using platform = await OwnPlatform.prepare();
  const closed = join(platform.dir, "closed");
  mkdirSync(closed, { mode: 0o700 });
  const { status, stderr } = await platform.dsec("up", "--detach", "--data-dir", join(closed, "data"));
  expect(status).toBe(1);
  expect(stderr).toContain(`the servers' user "dsec" cannot enter ${closed}`);
  expect(readdirSync(closed)).toEqual([]);
});

asRoot("a lock that is held by a process that does not say who it is", async () => {
  await using platform = await OwnPlatform.prepare();
  mkdirSync(platform.dataDir);
  const lock = await HeldLock.take(join(platform.dataDir, "lock"));
  try {
    const { status, stderr } = await platform.up();
    expect(status).toBe(1);
    expect(stderr).toContain("is locked by a process");
  } finally {
    await lock?.release();
  }
});

test("up without root says so", async () => {
  const { status, stderr } = await run(
    "setpriv",
    ["--reuid=65534", "--clear-groups", process.execPath, join(root, "packages/cli/src/launcher-main.ts"), "up"],
    { PATH: process.env["PATH"], XDG_CACHE_HOME: "/nonexistent" },
  );
  expect(status).toBe(1);
  expect(stderr).toContain("as root");
});

test("status and down where nothing is up", async () => {
  await using platform = await OwnPlatform.prepare();
  const { status, stdout } = await platform.dsec("status", "--json");
  expect(status).toBe(3);
  expect(JSON.parse(stdout)).toEqual({ up: false, state: "down", answers: false });
});

test.each([
  ["up", "--port", "0"],
  ["up", "--edges", "x"],
  ["up", "--slots", "-1"],
])("%s %s %s is refused", async (...args) => {
  const { status, stderr } = await run(
    process.execPath,
    [join(root, "packages/cli/src/launcher-main.ts"), ...args],
    process.env,
  );
  expect(status).toBe(1);
  expect(stderr).toContain("a whole number from");
});
