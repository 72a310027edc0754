// What the suite takes for left behind, and what it does not.
import { existsSync, mkdirSync, mkdtempSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { randomBase32 } from "@dsec/api";
import { describe, expect, test } from "vitest";
import { leftBehind, look } from "../../src/testing/leftovers.ts";
import { dropMark, setMark } from "../../src/up/range-marks.ts";
import { OwnPlatform, root } from "./support.ts";

const built = existsSync(join(root, "native/target/release/hostd"));
/** Lines about one of these; other tests leave and take things at the same time. */
const about = (lines: string[], ...names: string[]) =>
  lines.filter((line) => names.some((name) => line.includes(name)));

describe.runIf(process.getuid?.() === 0)("left behind", () => {
  test("is a cgroup of this run and a file, but not the cgroup of a platform with another /run", () => {
    const edge = `n${randomBase32(8)}`;
    const temporary = mkdtempSync(join(tmpdir(), "dsec-left-"));
    const span = { start: 4_000_000_000, end: 4_000_000_001 };
    const before = look();
    try {
      setMark({ edge, span });
      writeFileSync(join(temporary, "forgotten"), "");
      const found = about(leftBehind(before, "no-such-run", temporary), edge, "forgotten");
      expect(found).toHaveLength(2);
      expect(found.join("\n")).toContain(`/dsec/${edge}`);
      const place = /cgroups: (\S+)/.exec(found.join("\n"))?.[1] ?? "";
      const other = join(place, "ids-4000000000-4000000001-1.1");
      mkdirSync(other);
      expect(about(leftBehind(before, "no-such-run", temporary), edge)).toEqual([]);
      rmdirSync(other);
    } finally {
      dropMark({ edge, span });
      rmSync(temporary, { recursive: true });
    }
  });

  test.runIf(built)("is nothing of a platform that somebody else started meanwhile", { timeout: 300_000 }, async () => {
    const before = look();
    await using platform = await OwnPlatform.prepare();
    const temporary = mkdtempSync(join(platform.dir, "tmp-"));
    expect((await platform.up()).status).toBe(0);
    const { platform: state } = JSON.parse((await platform.dsec("status", "--json")).stdout);
    const names = [state.edges[0].edge, state.runDir, platform.dataDir];
    expect(about(leftBehind(before, "no-such-run", temporary), ...names)).toEqual([]);
    // Its own run would count it.
    const mark = process.env["DSEC_TEST_RUN"];
    if (mark !== undefined) expect(about(leftBehind(before, mark, temporary), ...names)).not.toEqual([]);
  });
});
