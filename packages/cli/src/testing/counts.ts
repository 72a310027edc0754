import type { Ended } from "./run.ts";

/** What one step of the suite came to. */
export interface Counts {
  readonly passed: number;
  readonly failed: number;
  /** Why, one line for each. */
  readonly skipped: readonly string[];
}

export const one = {
  passed: { passed: 1, failed: 0, skipped: [] },
  failed: { passed: 0, failed: 1, skipped: [] },
} as const satisfies Record<string, Counts>;

/** Of a check that is good where its program ends well; else its last words are shown. */
export function verdict({ status, output }: Ended): Counts {
  if (status === 0) return one.passed;
  console.log(output.trimEnd().slice(-20_000));
  return one.failed;
}

export function add(a: Counts, b: Counts): Counts {
  return { passed: a.passed + b.passed, failed: a.failed + b.failed, skipped: [...a.skipped, ...b.skipped] };
}

/** Counts of `cargo test`; a failure to compile counts as one. */
export function countCargo(output: string, status: number): Counts {
  let passed = 0;
  let failed = 0;
  for (const match of output.matchAll(/^test result: \w+\. (\d+) passed; (\d+) failed;/gm)) {
    passed += Number(match[1]);
    failed += Number(match[2]);
  }
  const skipped = [...output.matchAll(/^test (.+?) \.\.\. ignored(?:, (.*))?$/gm)].map(
    (match) => `${match[1]}: ${match[2] ?? "ignored"}`,
  );
  if (status !== 0 && failed === 0) failed = 1;
  return { passed, failed, skipped };
}

/** The part of vitest's JSON report that is counted. */
interface VitestReport {
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly assertionResults: readonly {
      readonly fullName: string;
      readonly status: string;
      readonly meta?: { readonly skip?: string };
    }[];
  }[];
}

/** Counts of vitest's JSON report; a file that could not be run counts as one failure, so does a run that broke off. */
export function countVitest(report: string | undefined, status: number): Counts {
  if (report === undefined) return one.failed;
  let passed = 0;
  let failed = 0;
  const skipped: string[] = [];
  for (const file of (JSON.parse(report) as VitestReport).testResults) {
    const before = failed;
    for (const test of file.assertionResults) {
      if (test.status === "passed") passed += 1;
      else if (test.status === "failed") failed += 1;
      else skipped.push(`${test.fullName}: ${test.meta?.skip ?? "skipped by its file"}`);
    }
    if (file.status === "failed" && failed === before) failed += 1;
  }
  if (status !== 0 && failed === 0) failed = 1;
  return { passed, failed, skipped };
}

/** Counts of pytest's summary; an error outside a test, and a run that broke off, count as a failure. */
export function countPytest(output: string, status: number): Counts {
  const summary =
    [...output.matchAll(/^(?=.*\d (?:passed|failed|errors?|skipped))[^\n]* in [\d.]+s.*$/gm)].at(-1)?.[0] ?? "";
  const count = (word: string) => Number(new RegExp(`(\\d+) ${word}\\b`).exec(summary)?.[1] ?? 0);
  const skipped = [...output.matchAll(/^SKIPPED \[\d+\] (.*)$/gm)].map((match) => match[1] as string);
  const failed = count("failed") + count("errors?");
  // 5: no test has that name.
  const brokeOff = status !== 0 && status !== 5 && failed === 0;
  return { passed: count("passed"), failed: brokeOff ? 1 : failed, skipped };
}

/** The last line of the suite, alone on its line. */
export function closingLine({ passed, failed, skipped }: Counts): string {
  const line = `${passed} passed, ${failed} failed`;
  return skipped.length > 0 ? `${line}, ${skipped.length} skipped` : line;
}
