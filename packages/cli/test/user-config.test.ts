import { chmodSync, chownSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { lookUp, writeConfigAs } from "../src/user-config.ts";

const root = process.geteuid?.() === 0;
const config = { endpoint: "http://127.0.0.1:7878", apiKey: "dsec_x" };
let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "dsec-user-"));
  chmodSync(dir, 0o755);
});
afterEach(() => rmSync(dir, { recursive: true }));

function homeOf(uid: number): { name: string; uid: number; gid: number; home: string } {
  const home = join(dir, "home");
  mkdirSync(home, { mode: 0o700 });
  chownSync(home, uid, uid);
  return { name: "someone-without-a-name", uid, gid: uid, home };
}

test.runIf(root)("the file belongs to the user and nobody else can read it; we are root again afterwards", () => {
  const user = homeOf(64_321);
  const file = writeConfigAs(user, config);
  expect(file).toBe(join(user.home, ".config/dsec/config.json"));
  expect(JSON.parse(readFileSync(file, "utf8"))).toEqual(config);
  expect(statSync(file)).toMatchObject({ uid: 64_321, gid: 64_321 });
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect([process.geteuid?.(), process.getegid?.()]).toEqual([0, 0]);
  writeConfigAs(user, { ...config, apiKey: "dsec_y" });
  expect(JSON.parse(readFileSync(file, "utf8")).apiKey).toBe("dsec_y");
});

test.runIf(root)("a link in the user's home leads root nowhere", () => {
  const user = homeOf(64_321);
  mkdirSync(join(dir, "roots"), { mode: 0o700 });
  symlinkSync(join(dir, "roots"), join(user.home, ".config"));
  expect(() => writeConfigAs(user, config)).toThrow(/EACCES/);
  expect(process.geteuid?.()).toBe(0);
});

test.runIf(root)("a user that is not there is named", () => {
  expect(() => lookUp("no-such-user")).toThrow(expect.objectContaining({ reason: "INVALID_USER" }));
  expect(lookUp("root")).toMatchObject({ uid: 0, home: "/root" });
});
