import fc from "fast-check";
import { expect, test } from "vitest";
import { HeadTail } from "../src/head-tail.ts";

test("keeps the first and last half and counts the middle", () => {
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 20 }),
      fc.integer({ min: 1, max: 30 }),
      (parts, half) => {
        const kept = new HeadTail(half * 2);
        for (const part of parts) kept.push(part);
        const all = Buffer.concat(parts);
        const { data, droppedBytes, gapAt } = kept.collected();
        if (all.length <= half * 2) {
          expect(Buffer.compare(Buffer.from(data), all)).toBe(0);
          expect(droppedBytes).toBe(0);
        } else {
          expect(Buffer.compare(Buffer.from(data), Buffer.concat([all.subarray(0, half), all.subarray(-half)]))).toBe(
            0,
          );
          expect(droppedBytes).toBe(all.length - half * 2);
          expect(gapAt).toBe(half);
        }
      },
    ),
  );
});

test("a gap told by the server counts, and nothing from before it is taken for what follows", () => {
  const kept = new HeadTail(8);
  kept.push(Buffer.from("abcdef"));
  kept.push(Buffer.from("xyz"), 100);
  const { data, droppedBytes, gapAt } = kept.collected();
  expect([Buffer.from(data).toString(), droppedBytes, gapAt]).toEqual(["abcdxyz", 102, 4]);
});
