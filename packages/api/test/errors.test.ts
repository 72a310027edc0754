// The table of errors, and its page.
import { readFileSync } from "node:fs";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { errorTable } from "../src/errors.ts";
import { errorsPage } from "../src/errors-page.ts";

test("every reason is UPPER_SNAKE, with a code, a meaning and a next step", () => {
  for (const [reason, kind] of Object.entries(errorTable)) {
    expect(reason).toMatch(/^[A-Z]+(_[A-Z]+)*$/);
    expect(Code[kind.code], reason).toBeDefined();
    for (const text of [kind.meaning, kind.next]) expect(text, reason).toMatch(/^\S.{8,}\.$/);
  }
});

test("no two reasons mean the same", () => {
  const meanings = Object.values(errorTable).map((kind) => kind.meaning);
  expect(new Set(meanings).size).toBe(meanings.length);
});

test("what a caller must correct is not to be retried", () => {
  const final: Code[] = [
    Code.InvalidArgument,
    Code.Unauthenticated,
    Code.PermissionDenied,
    Code.NotFound,
    Code.DataLoss,
  ];
  for (const [reason, kind] of Object.entries(errorTable)) {
    if (final.includes(kind.code)) expect(kind.retryable, reason).toBe(false);
  }
});

test("docs/errors.md is fresh; else run node packages/api/src/errors-page.ts", () => {
  expect(readFileSync(new URL("../../../docs/errors.md", import.meta.url), "utf8")).toBe(errorsPage());
});
