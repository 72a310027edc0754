import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";

const launcher = join(import.meta.dirname, "../../../../dsec");
const subjects = [
  "root",
  "system",
  "kernel",
  "mounts",
  "namespaces",
  "loop devices",
  "cgroups",
  "overlay",
  "erofs",
  "btrfs",
];

/** Without Node, HOME and TERM. */
function doctor(...args: string[]) {
  return spawnSync("/bin/sh", [launcher, "doctor", ...args], {
    cwd: "/",
    encoding: "utf8",
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
    timeout: 10_000,
  });
}

test("says one line a subject and what is not tried", () => {
  const { stdout, stderr, signal } = doctor();
  expect(signal).toBeNull();
  expect(stderr).toBe("");
  for (const subject of subjects)
    expect(stdout).toMatch(new RegExp(`^(ok|lost|MISSING|untried) +${subject}: .+$`, "m"));
  expect(stdout).toMatch(/^untried +registries: not tried/m);
});

test("--json is an array of objects with name, state and what", () => {
  const { stdout } = doctor("--json");
  const lines = JSON.parse(stdout) as { name: string; state: string; what: string; lost: string; get: string }[];
  expect(lines.map(({ name }) => name)).toEqual(expect.arrayContaining(subjects));
  for (const line of lines) {
    expect(["ok", "lost", "missing", "untried"]).toContain(line.state);
    expect(line.what).not.toBe("");
    if (line.state === "missing") expect(line.lost).not.toBe("");
  }
});

test("says what is lost without root, and ends with 1", () => {
  const { stdout, status } = spawnSync("setpriv", ["--reuid=65534", "--clear-groups", "/bin/sh", launcher, "doctor"], {
    encoding: "utf8",
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
  });
  expect(stdout).toMatch(/^MISSING +root: this is user 65534; only the client commands work/m);
  expect(status).toBe(1);
});

test("an option that it does not know is named", () => {
  const { stderr, status } = doctor("--fix");
  expect(stderr).toContain("--fix");
  expect(status).toBe(2);
});

test.runIf(process.getuid?.() === 0)("--try tries and leaves nothing mounted", () => {
  const { stdout } = doctor("--try");
  expect(stdout).toMatch(/try: mount: /);
  expect(stdout).toMatch(/try: overlay: /);
  const { stdout: mounts } = spawnSync("cat", ["/proc/self/mountinfo"], { encoding: "utf8" });
  expect(mounts).not.toContain("dsec-doctor");
});
