import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import { firstFree, idsPerSlot, type Span, spanOf, takenByMachine } from "../../src/up/ranges.ts";

test("a node's 3,200 slots fit several times into the 32-bit IDs, and then no more", () => {
  const size = 3200 * (idsPerSlot + 1);
  const taken: Span[] = [];
  for (let n = 0; ; n += 1) {
    const start = firstFree(taken, size);
    if (start === undefined) {
      expect(n).toBeGreaterThanOrEqual(15);
      return;
    }
    taken.push({ start, end: start + size });
  }
});

test("a free range meets nothing that is taken, and lies within the IDs", () => {
  const span = fc
    .tuple(fc.nat(2 ** 32), fc.integer({ min: 1, max: 2 ** 29 }))
    .map(([start, length]) => ({ start, end: start + length }));
  fc.assert(
    fc.property(
      fc.array(span, { maxLength: 12 }),
      fc.integer({ min: 1, max: 3200 * (idsPerSlot + 1) }),
      (taken, size) => {
        const start = firstFree(taken, size);
        if (start === undefined) return;
        expect(start).toBeGreaterThanOrEqual(1 << 20);
        expect(start + size).toBeLessThan(2 ** 32 - 1);
        for (const other of taken) expect(start + size <= other.start || start >= other.end).toBe(true);
      },
    ),
    { seed: 20261129 },
  );
});

test("users, subordinate ranges and systemd's foreign range are taken", () => {
  const etc = mkdtempSync(join(tmpdir(), "dsec-etc-"));
  try {
    writeFileSync(join(etc, "passwd"), "root:x:0:0::/root:/bin/sh\nfar:x:3000000:3000000::/:/bin/sh\n");
    writeFileSync(join(etc, "subuid"), "someone:1048576:65536\n");
    const taken = takenByMachine(etc);
    expect(taken).toContainEqual({ start: 3_000_000, end: 3_000_001 });
    expect(taken).toContainEqual({ start: 1_048_576, end: 1_114_112 });
    expect(firstFree(taken, 65_536)).toBe(1_114_112);
    expect(taken.some((span) => span.start <= 0x7ffe0000 && span.end >= 0x7fffffff)).toBe(true);
  } finally {
    rmSync(etc, { recursive: true });
  }
});

test("a range has the slots' IDs and one more a slot for its aether", () => {
  expect(spanOf({ uidStart: 1 << 20, slots: 10 })).toEqual({ start: 1 << 20, end: (1 << 20) + 10 * 65_537 });
});
