// DsecError, there and back over each form that it takes on a wire.
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { DsecError } from "../src/dsec-error.ts";
import { type ErrorReason, errorTable } from "../src/errors.ts";
import { ErrorInfoSchema } from "../src/gen/dsec/v1/error_pb.ts";

const facts = (error: DsecError) => ({
  reason: error.reason,
  message: error.message,
  code: error.code,
  retryable: error.retryable,
  outcome: error.outcome,
  retryAfterMs: error.retryAfterMs,
  metadata: error.metadata,
  next: error.next,
});

const full = new DsecError("CAPACITY_FULL", "no node took it", {
  outcomeUnknown: true,
  retryAfterMs: 1500,
  metadata: { refused: "e1,e2" },
});

test("each reason comes back from a Connect error as it was", () => {
  for (const reason of Object.keys(errorTable) as ErrorReason[]) {
    const error = new DsecError(reason, `about ${reason}`);
    expect(error.code).toBe(errorTable[reason].code);
    expect(error.next).toBe(errorTable[reason].next);
    expect(error.toConnect().code).toBe(error.code);
    expect(facts(DsecError.from(error.toConnect()))).toEqual(facts(error));
  }
});

test("all of its facts come back, over Connect and over frames", () => {
  expect(facts(DsecError.from(full.toConnect()))).toEqual(facts(full));
  const bytes = toBinary(ErrorInfoSchema, full.toInfo());
  expect(facts(DsecError.fromInfo(fromBinary(ErrorInfoSchema, bytes)))).toEqual(facts(full));
  expect(full.toConnect().metadata.get("retry-after")).toBe("2");
  expect(new DsecError("INTERNAL", "x").toConnect().metadata.has("retry-after")).toBe(false);
});

test("a reason that is not known is kept, and is internal", () => {
  for (const reason of ["FROM_THE_FUTURE", "toString", "__proto__"]) {
    const error = DsecError.fromInfo(create(ErrorInfoSchema, { reason, message: "new" }));
    expect(facts(error)).toMatchObject({ reason, code: Code.Internal, retryable: false, next: "" });
  }
});

test("what carries no reason gets one by its code", () => {
  const of = (code: Code) => DsecError.from(new ConnectError("why", code));
  expect(of(Code.Canceled).reason).toBe("CANCELLED");
  expect(of(Code.DeadlineExceeded).reason).toBe("DEADLINE_EXCEEDED");
  expect(of(Code.Unavailable).reason).toBe("UNAVAILABLE");
  expect(of(Code.Unauthenticated).reason).toBe("UNAUTHENTICATED");
  expect(of(Code.Unknown).reason).toBe("INTERNAL");
  expect(of(Code.Unavailable).message).toBe("why");
  // A code without its own reason must at least keep its meaning for the retry.
  for (const code of Object.values(Code)) {
    if (typeof code === "number") expect(errorTable[of(code).reason as ErrorReason]).toBeDefined();
  }
});

test("any thrown thing becomes one, with its cause", () => {
  const cause = new TypeError("broken");
  expect(DsecError.from(cause)).toMatchObject({ reason: "INTERNAL", message: "broken", cause });
  expect(DsecError.from("text")).toMatchObject({ reason: "INTERNAL", message: "text" });
  expect(DsecError.from(full)).toBe(full);
});
