import fc from "fast-check";
import { expect, test } from "vitest";
import { Collector } from "../src/commands/collect.ts";

function add(collector: Collector, data: Buffer, offset = 0, dropped = 0): void {
  collector.add({ stream: "stdout", offset, dropped, length: data.length, parts: [data] });
}

function whole(collector: Collector) {
  const { parts, droppedBytes, gapAt } = collector.result();
  return { data: Buffer.concat(parts), droppedBytes: BigInt(droppedBytes), gapAt: BigInt(gapAt) };
}

test("up to the cap all is kept, beyond it head and tail, however it comes", () => {
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ minLength: 0, maxLength: 40 }), { maxLength: 30 }),
      fc.integer({ min: 2, max: 300 }),
      (parts, cap) => {
        const all = Buffer.concat(parts);
        const collector = new Collector(cap);
        for (const part of parts) add(collector, Buffer.from(part));
        const { data, droppedBytes, gapAt } = whole(collector);
        if (all.length <= cap) {
          expect(Buffer.compare(Buffer.from(data), all)).toBe(0);
          expect(droppedBytes).toBe(0n);
          return;
        }
        const head = Math.ceil(cap / 2);
        const expected = Buffer.concat([all.subarray(0, head), all.subarray(all.length - (cap - head))]);
        expect(Buffer.compare(Buffer.from(data), expected)).toBe(0);
        expect([droppedBytes, gapAt]).toEqual([BigInt(all.length - cap), BigInt(head)]);
      },
    ),
  );
});

test("large pieces are cut at the byte", () => {
  const collector = new Collector(1000);
  for (let i = 0; i < 200; i++) add(collector, Buffer.alloc(20_000, i));
  add(collector, Buffer.from("END\n"));
  const { data, droppedBytes } = whole(collector);
  expect(data.length).toBe(1000);
  expect(Buffer.from(data).toString("latin1").endsWith("END\n")).toBe(true);
  expect(droppedBytes).toBe(BigInt(200 * 20_000 + 4 - 1000));
});

test("output written byte by byte does not cost an object a byte", () => {
  const collector = new Collector(16 * 1024 * 1024);
  const one = Buffer.from("x");
  for (let i = 0; i < 100_000; i++) add(collector, one);
  expect(whole(collector).data.length).toBe(100_000);
});

test("a gap in the record is counted where it is", () => {
  const collector = new Collector(100);
  add(collector, Buffer.from("head"));
  add(collector, Buffer.from("tail"), 1004, 1000);
  const { data, droppedBytes, gapAt } = whole(collector);
  expect([Buffer.from(data).toString(), droppedBytes, gapAt]).toEqual(["headtail", 1000n, 4n]);
});

test("of two gaps one is told, and what lies between them is dropped", () => {
  const collector = new Collector(100);
  add(collector, Buffer.from("ab"));
  add(collector, Buffer.from("cd"), 12, 10);
  add(collector, Buffer.from("ef"), 24, 10);
  const { data, droppedBytes, gapAt } = whole(collector);
  expect([Buffer.from(data).toString(), droppedBytes, gapAt]).toEqual(["abef", 22n, 2n]);
});
