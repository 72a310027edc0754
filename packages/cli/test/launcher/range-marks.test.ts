// IDs are not given twice to platforms that share the kernel but not /run, as a chroot or a container beside the machine's.
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { randomBase32 } from "@dsec/api";
import { describe, expect, test } from "vitest";
import { cgroupsOf } from "../../src/up/ending.ts";
import { dropMark, type Mark, readMarks } from "../../src/up/range-marks.ts";
import { claim, type Range, spanOf } from "../../src/up/ranges.ts";
import { OwnPlatform, root, run } from "./support.ts";

const meet = (a: Mark["span"], b: Mark["span"]) => a.start < b.end && b.start < a.end;
const built = existsSync(join(root, "native/target/release/hostd"));

describe.runIf(process.getuid?.() === 0)("without a lock in common", () => {
  test("claims at the same time never meet, and go without a trace", async () => {
    const edges = Array.from({ length: 8 }, () => `n${randomBase32(8)}`);
    const module = join(root, "packages/cli/src/up/ranges.ts");
    const code = `const { claim } = await import(${JSON.stringify(module)}); console.log("ready"); process.stdin.once("data", async () => { console.log(await claim(process.argv[1], 6_553_700, [])); process.exit(); });`;
    try {
      const claimants = edges.map((edge) => {
        const child = spawn(process.execPath, ["--input-type=module", "-e", code, edge], {
          stdio: ["pipe", "pipe", "inherit"],
        });
        let output = "";
        const ready = new Promise((resolve) => child.stdout.once("data", resolve));
        child.stdout.on("data", (data: Buffer) => {
          output += data;
        });
        const start = new Promise<number>((resolve) =>
          child.once("close", () => resolve(Number(output.split("\n")[1]))),
        );
        return { child, ready, start };
      });
      await Promise.all(claimants.map(({ ready }) => ready));
      for (const { child } of claimants) child.stdin.write("go\n");
      const starts = await Promise.all(claimants.map(({ start }) => start));
      const marks = readMarks().filter(({ edge }) => edges.includes(edge));
      expect(marks.map(({ span }) => span.start).sort()).toEqual([...starts].sort());
      for (const [index, one] of marks.entries())
        for (const other of marks.slice(index + 1)) expect(meet(one.span, other.span)).toBe(false);
    } finally {
      for (const mark of readMarks()) if (edges.includes(mark.edge)) dropMark(mark);
    }
    for (const edge of edges) expect(cgroupsOf(edge)).toEqual([]);
  });

  test("an edge's own mark is not in its way", async () => {
    const edge = `n${randomBase32(8)}`;
    try {
      const start = await claim(edge, 65_537, []);
      expect(await claim(edge, 65_537, [])).toBe(start);
    } finally {
      for (const mark of readMarks()) if (mark.edge === edge) dropMark(mark);
    }
  });
});

describe.runIf(process.getuid?.() === 0 && built)("a platform with a /run of its own", { timeout: 300_000 }, () => {
  test("has other IDs than the one outside, and its end leaves nothing in /run", async () => {
    await using outside = await OwnPlatform.prepare();
    expect((await outside.up()).status).toBe(0);
    const ranges = JSON.parse(readFileSync("/run/dsec/ranges.json", "utf8")) as Range[];
    const theirs = ranges.find(({ dataDir }) => dataDir === outside.dataDir);
    expect(theirs).toBeDefined();

    await using inside = await OwnPlatform.prepare();
    const main = join(root, "packages/cli/src/launcher-main.ts");
    // In a chroot / is no mount, but /run is.
    const script = `
mount --make-rprivate /run 2>/dev/null || mount --make-rprivate / || exit 1
mount -t tmpfs none /run
"$0" "${main}" up --detach --slots 64 --port ${inside.port} --data-dir "${inside.dataDir}" >&2 && cat /run/dsec/ranges.json
"$0" "${main}" down --data-dir "${inside.dataDir}" >&2 && ls -A /run >&2`;
    const args = ["--mount", "--propagation=unchanged", "sh", "-c", script, process.execPath];
    const { stdout, stderr, status } = await run("unshare", args, inside.env);
    expect(status, stderr).toBe(0);
    const [own] = JSON.parse(stdout) as Range[];
    expect(own?.dataDir).toBe(inside.dataDir);
    if (own && theirs) expect(meet(spanOf(own), spanOf(theirs))).toBe(false);
    expect(stderr.trimEnd().split("\n").at(-1)).toBe("dsec: down; the data are kept");
    expect(readMarks().some(({ edge }) => edge === own?.edge)).toBe(false);
  });
});
