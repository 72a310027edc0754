// Sandbox files: written whole, read back, and used again without a trace of what was in them.
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { RecordStore, recordVersion, type SandboxRecord } from "../src/sandboxes/record.ts";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "dsec-test-records-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const record = (id: string, label = "") =>
  ({ version: recordVersion, id, labels: { label }, events: [] }) as unknown as SandboxRecord;

test("what was saved last is read back, whatever its length was before", () => {
  const store = new RecordStore(dir);
  for (const length of [10, 9000, 0, 4096, 20]) {
    store.save(record("e1a", "ü".repeat(length)));
    expect(new RecordStore(dir).load().records[0]?.labels["label"]).toBe("ü".repeat(length));
  }
});

test("a file is used again, and holds nothing of its last sandbox", () => {
  const store = new RecordStore(dir);
  store.save(record("e1first", "x".repeat(9000)));
  const [file] = readdirSync(dir, { withFileTypes: true });
  expect(file?.name).toBe("e1first.json");
  store.remove("e1first");
  store.remove("e1first");
  store.save(record("e1second"));
  expect(readdirSync(dir)).toEqual(["e1second.json"]);
  expect(readFileSync(join(dir, "e1second.json"), "utf8")).not.toContain("x");
});

test("rounds leave one spare, and the next start none", () => {
  const store = new RecordStore(dir);
  for (let round = 0; round < 100; round++) {
    store.save(record(`e1r${round}`));
    store.remove(`e1r${round}`);
  }
  expect(readdirSync(dir)).toHaveLength(1);
  writeFileSync(join(dir, "e1broken.json"), '{"version":');
  expect(new RecordStore(dir).load()).toEqual({ records: [], bad: ["e1broken.json"] });
  expect(readdirSync(dir)).toEqual([]);
});
