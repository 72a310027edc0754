import fc from "fast-check";
import { expect, test } from "vitest";
import { encodeFrame, FrameReader, joinParts, maxPayload, ProtocolError } from "../src/wire/frames.ts";

test("frames come out whole, however the bytes are cut", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.integer({ min: 0, max: 2 }), fc.uint8Array({ maxLength: 300 })), { maxLength: 20 }),
      fc.array(fc.integer({ min: 1, max: 97 }), { minLength: 1 }),
      (frames, cuts) => {
        const bytes = Buffer.concat(frames.map(([kind, payload]) => encodeFrame(kind, payload)));
        const reader = new FrameReader(2);
        const seen: [number, Uint8Array][] = [];
        for (let at = 0, i = 0; at < bytes.length; i++) {
          const size = cuts[i % cuts.length] as number;
          reader.push(bytes.subarray(at, at + size), (f) =>
            seen.push([f.kind, Uint8Array.from(joinParts(f.parts, f.length))]),
          );
          at += size;
        }
        expect(seen.map(([k, p]) => [k, [...(p ?? [])]])).toEqual(frames.map(([k, p]) => [k, [...p]]));
        expect(reader.partial).toBe(false);
      },
    ),
  );
});

test("an empty frame is a frame", () => {
  const seen: number[] = [];
  new FrameReader(2).push(encodeFrame(1, Buffer.alloc(0)), (f) => seen.push(f.length, f.parts.length));
  expect(seen).toEqual([0, 0]);
  expect(joinParts([], 0).length).toBe(0);
});

test("a length is refused before anything of it is kept", () => {
  const header = Buffer.alloc(8);
  header.writeUInt32BE(maxPayload + 1);
  expect(() => new FrameReader(2).push(header, () => {})).toThrow(ProtocolError);
  const kind = Buffer.alloc(8);
  kind[4] = 1;
  expect(() => new FrameReader(0).push(kind, () => {})).toThrow("kind 1");
});
