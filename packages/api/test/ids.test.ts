import { expect, test } from "vitest";
import { edgeOfSandboxId, isEdgeName, printable, randomBase32 } from "../src/ids.ts";

test("an ID names its edge", () => {
  for (const edge of ["e", "e1", "node7", "abcdefghijkl"]) {
    for (let i = 0; i < 100; i++) {
      const id = edge + randomBase32(20);
      expect(edgeOfSandboxId(id)).toBe(edge);
      expect(id.length).toBeLessThanOrEqual(32);
    }
  }
});

test("what is no ID is refused, escaped", () => {
  const random = "a".repeat(20);
  for (const id of [
    "",
    random,
    `E${random}`,
    `1${random}`,
    `e-${random}`,
    `e${random}1`,
    `abcdefghijklm${random}`,
    `e${"0".repeat(20)}`,
    `e/../${random}`,
    `e${random}\n`,
  ]) {
    expect(() => edgeOfSandboxId(id), id).toThrowError(expect.objectContaining({ reason: "SANDBOX_NOT_FOUND" }));
  }
  expect(() => edgeOfSandboxId("\u001b[2J\n")).toThrowError(/^"\\u001b\[2J\\n" is not a sandbox ID$/);
});

test("names of edges", () => {
  for (const name of ["e", "e1", "abcdefghijkl"]) expect(isEdgeName(name), name).toBe(true);
  for (const name of ["", "1e", "E1", "e-1", "e_", "abcdefghijklm", "e\n"]) expect(isEdgeName(name), name).toBe(false);
});

test("text from outside is short and on one line", () => {
  expect(printable("plain")).toBe("plain");
  expect(printable('a"\n\u0000')).toBe('a\\"\\n\\u0000');
  expect(printable("x".repeat(1000))).toHaveLength(64);
});

test("random base32 is of the alphabet and does not repeat", () => {
  const seen = new Set(Array.from({ length: 1000 }, () => randomBase32(20)));
  expect(seen.size).toBe(1000);
  for (const id of seen) expect(id).toMatch(/^[a-z2-7]{20}$/);
  expect(randomBase32(0)).toBe("");
});
