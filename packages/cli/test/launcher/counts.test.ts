import { expect, test } from "vitest";
import { add, closingLine, countCargo, countPytest, countVitest, one } from "../../src/testing/counts.ts";

test("cargo's results of several programs are added up, with the reasons of what was skipped", () => {
  const output = [
    "running 3 tests",
    "test frame::long ... ignored, only with DSEC_TEST_ALL",
    "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
    "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
  ].join("\n");
  expect(countCargo(output, 101)).toEqual({ passed: 6, failed: 2, skipped: ["frame::long: only with DSEC_TEST_ALL"] });
});

test("a program that does not compile is a failure", () => {
  expect(countCargo("error[E0308]: mismatched types", 101)).toEqual(one.failed);
});

test("vitest's report counts tests, skipped ones, and files that could not be loaded", () => {
  const report = {
    testResults: [
      {
        name: "a",
        status: "failed",
        assertionResults: [
          { fullName: "x", status: "passed" },
          { fullName: "y", status: "failed" },
          { fullName: "z", status: "pending" },
        ],
      },
      { name: "b", status: "failed", assertionResults: [] },
    ],
  };
  expect(countVitest(JSON.stringify(report), 1)).toEqual({ passed: 1, failed: 2, skipped: ["z: skipped by its file"] });
});

test("a run that wrote no report, or ended badly with all tests passed, has failed", () => {
  expect(countVitest(undefined, 0)).toEqual(one.failed);
  expect(countVitest(JSON.stringify({ testResults: [] }), 1).failed).toBe(1);
});

test("the closing line names skipped ones only where there are some", () => {
  expect(closingLine(add(one.passed, one.failed))).toBe("1 passed, 1 failed");
  expect(closingLine({ passed: 3, failed: 0, skipped: ["why"] })).toBe("3 passed, 0 failed, 1 skipped");
});

test("pytest's summary counts errors as failures, and a run that broke off", () => {
  const summary =
    "SKIPPED [1] tests/test_a.py:3: no uvloop here\n= 2 failed, 7 passed, 1 skipped, 1 error in 3.21s =\n";
  expect(countPytest(summary, 1)).toEqual({ passed: 7, failed: 3, skipped: ["tests/test_a.py:3: no uvloop here"] });
  expect(countPytest("7 passed in 63.10s (0:01:03)\n", 0)).toEqual({ passed: 7, failed: 0, skipped: [] });
  expect(countPytest("no tests ran in 0.01s", 5)).toEqual({ passed: 0, failed: 0, skipped: [] });
  expect(countPytest("7 passed in 1.00s", 1).failed).toBe(1);
  expect(countPytest("ModuleNotFoundError: No module named 'pytest'", 1)).toEqual(one.failed);
});
