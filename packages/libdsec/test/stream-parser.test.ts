import { create, toBinary } from "@bufbuild/protobuf";
import { DsecError, StreamResponseSchema } from "@dsec/api";
import fc from "fast-check";
import { expect, test } from "vitest";
import { envelope } from "../src/output-stream.ts";
import { type CommandEvent, StreamParser } from "../src/transport/stream-parser.ts";

interface Piece {
  stream: 1 | 2;
  offset: bigint;
  droppedBytes: bigint;
  data: Uint8Array;
}

const last = (text: string) => {
  const frame = Buffer.from(envelope(Buffer.from(text)));
  frame[0] = 2;
  return frame;
};
const output = (value: Piece) =>
  envelope(toBinary(StreamResponseSchema, create(StreamResponseSchema, { event: { case: "output", value } })));

function parse(wire: Buffer, cuts: number[]): { parser: StreamParser; events: CommandEvent[] } {
  const parser = new StreamParser();
  const events: CommandEvent[] = [];
  let at = 0;
  for (const cut of [...cuts.map((c) => c % (wire.length + 1)).sort((a, b) => a - b), wire.length]) {
    parser.push(wire.subarray(at, cut), events);
    at = cut;
  }
  return { parser, events };
}

const piece = fc.record({
  stream: fc.constantFrom(1 as const, 2 as const),
  offset: fc.bigInt({ min: 0n, max: 2n ** 50n }),
  droppedBytes: fc.bigInt({ min: 0n, max: 2n ** 40n }),
  data: fc.uint8Array({ maxLength: 300 }),
});

test("output arrives byte for byte with its offsets, wherever the wire is cut", () => {
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 8 }), fc.array(fc.nat(5000), { maxLength: 40 }), (pieces, cuts) => {
      const wire = Buffer.concat([
        envelope(
          toBinary(
            StreamResponseSchema,
            create(StreamResponseSchema, { event: { case: "started", value: { commandId: "c1" } } }),
          ),
        ),
        ...pieces.map(output),
        envelope(
          toBinary(
            StreamResponseSchema,
            create(StreamResponseSchema, { event: { case: "ended", value: { exitCode: 7 } } }),
          ),
        ),
        last("{}"),
      ]);
      const { parser, events } = parse(wire, cuts);
      expect(parser.finished).toBe(true);
      expect(events[0]).toMatchObject({ type: "started", info: { commandId: "c1" } });
      expect(events.at(-1)).toMatchObject({ type: "ended", outcome: { exitCode: 7 } });
      // Slices of one chunk are put together again by their offsets.
      const got: Piece[] = [];
      for (const event of events) {
        if (event.type !== "output") continue;
        const before = got.at(-1);
        const stream = event.stream === "stdout" ? 1 : 2;
        if (
          before &&
          event.droppedBytes === 0 &&
          before.stream === stream &&
          before.offset + BigInt(before.data.length) === BigInt(event.offset)
        ) {
          before.data = Buffer.concat([before.data, event.data]);
        } else
          got.push({
            stream,
            offset: BigInt(event.offset),
            droppedBytes: BigInt(event.droppedBytes),
            data: Buffer.from(event.data),
          });
      }
      const wanted: Piece[] = [];
      for (const one of pieces) {
        const before = wanted.at(-1);
        if (one.data.length === 0 && one.droppedBytes === 0n) continue;
        if (
          before &&
          one.droppedBytes === 0n &&
          before.stream === one.stream &&
          before.offset + BigInt(before.data.length) === one.offset
        ) {
          before.data = Buffer.concat([before.data, one.data]);
        } else wanted.push({ ...one, data: Buffer.from(one.data) });
      }
      expect(got.map((g) => ({ ...g, data: Buffer.from(g.data).toString("hex") }))).toEqual(
        wanted.map((w) => ({ ...w, data: Buffer.from(w.data).toString("hex") })),
      );
    }),
    { numRuns: 300 },
  );
});

test("an output chunk whose fields come in another order is read too", () => {
  // data first, then stream: legal protobuf that no writer of ours makes.
  const inner = Buffer.from([0x22, 3, 65, 66, 67, 0x08, 2, 0x10, 9]);
  const wire = Buffer.concat([envelope(Buffer.concat([Buffer.from([0x12, inner.length]), inner])), last("{}")]);
  const { events } = parse(wire, [4, 9]);
  expect(events).toMatchObject([{ type: "output", stream: "stderr", offset: 9 }]);
  expect(Buffer.from((events[0] as { data: Uint8Array }).data).toString()).toBe("ABC");
});

test("the error of the last frame is thrown as it was sent", () => {
  const value = Buffer.from(toBinaryInfo()).toString("base64");
  const wire = last(
    JSON.stringify({ error: { code: "aborted", message: "cut", details: [{ type: "dsec.v1.ErrorInfo", value }] } }),
  );
  expect(() => parse(wire, [])).toThrow(expect.objectContaining({ reason: "SLOW_READER", retryable: true }));
});

function toBinaryInfo(): Uint8Array {
  return new DsecError("SLOW_READER", "cut")
    .toConnect()
    .details.flatMap((detail) =>
      "desc" in detail ? [toBinary(detail.desc, create(detail.desc, detail.value as never))] : [],
    )[0] as Uint8Array;
}

test("nonsense is refused before anything is kept", () => {
  expect(() => parse(Buffer.from("HTTP/1.1 200 OK"), [])).toThrow(/not one of the Stream method/);
  expect(() => parse(Buffer.from([0, 0xff, 0xff, 0xff, 0xff, 0x1a, ...new Array(50).fill(0)]), [])).toThrow(
    /a frame of 4294967295 bytes/,
  );
});

test("any bytes give events or a DsecError", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), fc.array(fc.nat(400), { maxLength: 5 }), (bytes, cuts) => {
      try {
        parse(Buffer.from(bytes), cuts);
      } catch (error) {
        if (
          !(error instanceof DsecError) &&
          !/^(illegal|premature|cannot decode|invalid|unexpected)/i.test((error as Error).message)
        )
          throw error;
      }
    }),
    { numRuns: 2000 },
  );
});
