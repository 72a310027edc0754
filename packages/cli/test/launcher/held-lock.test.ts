import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { HeldLock } from "../../src/up/held-lock.ts";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "dsec-lock-"));
});
afterEach(() => rmSync(dir, { recursive: true }));

test("one holds it, a second is told so, and it is free after the release", async () => {
  const file = join(dir, "lock");
  const first = await HeldLock.take(file);
  expect(first).toBeDefined();
  expect(await HeldLock.take(file)).toBeUndefined();
  await first?.release();
  const second = await HeldLock.take(file);
  expect(second).toBeDefined();
  await second?.release();
});

test("it falls when its holder is killed", async () => {
  const file = join(dir, "lock");
  const module = join(import.meta.dirname, "../../src/up/held-lock.ts");
  const code = `const { HeldLock } = await import(${JSON.stringify(module)}); await HeldLock.take(${JSON.stringify(file)}); console.log("held"); setInterval(() => {}, 1000);`;
  const holder = spawn(process.execPath, ["--input-type=module", "-e", code], { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise((resolve) => holder.stdout.once("data", resolve));
  expect(await HeldLock.take(file)).toBeUndefined();
  holder.kill("SIGKILL");
  const mine = await HeldLock.take(file, 10);
  expect(mine).toBeDefined();
  await mine?.release();
});
