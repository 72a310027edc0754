// Results are encoded by hand: they must read as the generated code would have written them.
import { create, fromBinary } from "@bufbuild/protobuf";
import { CommandOutcomeSchema, ExecResponseSchema, LimitHit, WaitResponseSchema } from "@dsec/api";
import fc from "fast-check";
import { expect, test } from "vitest";
import { resultReply } from "../src/commands/result-reply.ts";

const kept = fc.record({
  parts: fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 4 }),
  droppedBytes: fc.oneof(fc.constant(0), fc.maxSafeNat()),
  gapAt: fc.nat(),
});

test("any result is read back as it was", () => {
  fc.assert(
    fc.property(
      fc.record({
        commandId: fc.string(),
        exitCode: fc.integer({ min: -1, max: 255 }),
        stdout: kept,
        stderr: kept,
        large: fc.boolean(),
      }),
      ({ commandId, exitCode, stdout, stderr, large }) => {
        const outcome = create(CommandOutcomeSchema, { exitCode, limitHit: [LimitHit.DISK] });
        // Above the size from which the pieces are not joined.
        const more = large ? { ...stdout, parts: [...stdout.parts, new Uint8Array(20_000).fill(7)] } : stdout;
        const reply = resultReply({ commandId, outcome, stdout: more, stderr });
        expect(reply.parts.length > 1).toBe(large);
        const bytes = Buffer.concat(reply.parts);
        expect(bytes.length).toBe(reply.length);
        for (const schema of [ExecResponseSchema, WaitResponseSchema] as const) {
          const { result } = fromBinary(schema, bytes);
          expect(result?.commandId).toBe(commandId);
          expect(result?.outcome).toEqual(outcome);
          for (const [got, given] of [
            [result?.stdout, more],
            [result?.stderr, stderr],
          ] as const) {
            expect(Buffer.from(got?.data ?? [])).toEqual(Buffer.concat(given.parts));
            expect([got?.droppedBytes, got?.gapAt]).toEqual([BigInt(given.droppedBytes), BigInt(given.gapAt)]);
          }
        }
      },
    ),
  );
});
