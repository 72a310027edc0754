import { fromBinary } from "@bufbuild/protobuf";
import { OutputStream, StreamResponseSchema } from "@dsec/api";
import fc from "fast-check";
import { expect, test } from "vitest";
import { outputPrefix } from "../src/commands/envelope.ts";

test("the prefix written by hand is what protobuf would write", () => {
  fc.assert(
    fc.property(
      fc.constantFrom("stdout" as const, "stderr" as const),
      fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }),
      fc.integer({ min: 0, max: 2 ** 40 }),
      fc.uint8Array({ maxLength: 300 }),
      (stream, offset, dropped, data) => {
        const whole = Buffer.concat([
          outputPrefix({ stream, offset, dropped, length: data.length, parts: [data] }),
          data,
        ]);
        expect(whole[0]).toBe(0);
        expect(whole.readUInt32BE(1)).toBe(whole.length - 5);
        const { event } = fromBinary(StreamResponseSchema, whole.subarray(5));
        if (event.case !== "output") throw new Error("no output");
        expect(event.value.stream).toBe(stream === "stdout" ? OutputStream.STDOUT : OutputStream.STDERR);
        expect([Number(event.value.offset), Number(event.value.droppedBytes)]).toEqual([offset, dropped]);
        expect([...event.value.data]).toEqual([...data]);
      },
    ),
  );
});
