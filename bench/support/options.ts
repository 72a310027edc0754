import { parseArgs } from "node:util";

/** What every bench takes: --json (one document on stdout), --quick (a smoke test), --seed N. */
export function options(): { json: boolean; quick: boolean; seed: number } {
  const { values } = parseArgs({
    options: {
      json: { type: "boolean", default: false },
      quick: { type: "boolean", default: false },
      seed: { type: "string", default: "1" },
    },
  });
  return { json: values.json, quick: values.quick, seed: Number(values.seed) };
}
