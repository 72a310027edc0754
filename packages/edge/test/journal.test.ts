import { appendFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { EndReason } from "@dsec/api";
import { afterEach, beforeEach, expect, test } from "vitest";
import { retention } from "../src/defaults.ts";
import { CreateKeys } from "../src/sandboxes/create-keys.ts";
import { Journal } from "../src/sandboxes/journal.ts";
import { Tombstones } from "../src/sandboxes/tombstones.ts";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "dsec-journal-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

function open() {
  const journal = new Journal(join(dir, "journal"));
  const keys = new CreateKeys(journal);
  const tombstones = new Tombstones(journal);
  for (const line of journal.open()) {
    tombstones.replay(line);
    keys.replay(line);
  }
  return { journal, keys, tombstones };
}
const stone = (id: string, at: number) => ({
  id,
  project: "p",
  reason: EndReason.TTL,
  endedAtMs: at,
  createdAtMs: 1,
  message: "",
});

test("what was recorded is there after a restart, also after a rewrite", () => {
  const first = open();
  first.keys.begin("p", "alive-key", "d1", "id1", 1000);
  first.keys.begin("p", "ended-key", "d2", "id2", 1000);
  first.keys.begin("p", "failed-key", "d3", "id3", 1000);
  first.keys.failed("p", "failed-key");
  first.keys.ask("p", "asked-key", 7, 1000);
  first.keys.ended("id2", 2000);
  first.tombstones.add(stone("id2", 2000));
  for (let round = 0; round < 2; round++) {
    const { journal, keys, tombstones } = open();
    expect(keys.check("p", "alive-key", "d1", 0)).toBe("id1");
    expect(keys.check("p", "ended-key", "d2", 0)).toBe("id2");
    expect(() => keys.check("p", "alive-key", "other", 0)).toThrow("other arguments");
    expect(keys.check("q", "alive-key", "d1", 0)).toBeUndefined();
    expect(keys.check("p", "failed-key", "d3", 0)).toBeUndefined();
    expect(() => keys.check("p", "asked-key", "d", 0)).toThrow("came after");
    expect(keys.check("p", "asked-key", "d", 7)).toBeUndefined();
    expect(tombstones.get("id2")).toEqual(stone("id2", 2000));
    journal.compact([...keys.lines(), ...tombstones.lines()]);
    journal.close();
  }
});

test("keys are kept an hour after the end, tombstones a day", () => {
  const { keys, tombstones } = open();
  keys.begin("p", "some-key1", "d", "id1", 0);
  keys.forgetOld(retention.createKeyMs * 100);
  expect(keys.check("p", "some-key1", "d", 0)).toBe("id1");
  keys.ended("id1", 1000);
  tombstones.add(stone("id1", 1000));
  keys.forgetOld(1000 + retention.createKeyMs - 1);
  expect(keys.check("p", "some-key1", "d", 0)).toBe("id1");
  keys.forgetOld(1000 + retention.createKeyMs);
  expect(keys.check("p", "some-key1", "d", 0)).toBeUndefined();
  tombstones.forgetOld(1000 + retention.tombstoneMs - 1);
  expect(tombstones.size).toBe(1);
  tombstones.forgetOld(1000 + retention.tombstoneMs);
  expect(tombstones.size).toBe(0);
});

test("a line cut by a crash is left out, and the next is whole", () => {
  const first = open();
  first.keys.begin("p", "whole-key", "d", "id1", 1);
  first.journal.close();
  appendFileSync(join(dir, "journal"), '{"t":"key","p":"p","k":"cut-');
  const second = open();
  second.keys.begin("p", "after-key", "d", "id2", 1);
  second.journal.close();
  const third = open();
  expect([third.keys.check("p", "whole-key", "d", 0), third.keys.check("p", "after-key", "d", 0)]).toEqual([
    "id1",
    "id2",
  ]);
});

test("a create that was not finished is dropped, others are not", () => {
  const { keys } = open();
  keys.begin("p", "unfinished", "d", "id1", 1);
  keys.begin("p", "finished-1", "d", "id2", 1);
  expect(keys.dropUnfinished((id) => id === "id2")).toEqual(["id1"]);
  expect([keys.check("p", "unfinished", "d", 0), keys.check("p", "finished-1", "d", 0)]).toEqual([undefined, "id2"]);
});

test("one that ended costs less than a kibibyte", () => {
  const { keys, tombstones } = open();
  for (let i = 0; i < 100; i++) {
    keys.begin("root/some/project", `${"k".repeat(60)}${i}`, "d".repeat(64), `edge${"a".repeat(20)}${i}`, Date.now());
    tombstones.add({ ...stone(`edge${"a".repeat(20)}${i}`, Date.now()), message: "AETHER_GONE" });
  }
  expect(readFileSync(join(dir, "journal")).length).toBeLessThan(100 * 1024);
});
