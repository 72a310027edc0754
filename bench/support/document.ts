// The one document that a bench prints on stdout; progress goes to stderr.
import { readFileSync } from "node:fs";
import { availableParallelism, release, totalmem } from "node:os";

export interface Figure {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
  readonly kind: "measured" | "modelled" | "simulated";
  /** Text such as ">= 150"; absent for a rival's figure. */
  readonly target?: string;
  readonly ok?: boolean;
}

export class BenchDocument {
  readonly #bench: string;
  readonly #figures: Figure[] = [];

  constructor(bench: string) {
    this.#bench = bench;
  }

  /** Adds a measured figure; value in the named unit. */
  add(name: string, value: number, unit: string, target?: string): void {
    const rounded = Number(value.toPrecision(4));
    const figure = { name, value: rounded, unit, kind: "measured" as const };
    this.#figures.push(target === undefined ? figure : { ...figure, target, ok: meets(rounded, target) });
    progress(`${name} = ${rounded} ${unit}${target === undefined ? "" : ` (target ${target})`}`);
  }

  print(json: boolean): void {
    const document = {
      bench: this.#bench,
      machine: { cpus: availableParallelism(), memoryMiB: Math.round(totalmem() / 2 ** 20), kernel: release() },
      figures: this.#figures,
    };
    if (json) {
      process.stdout.write(`${JSON.stringify(document)}\n`);
      return;
    }
    for (const f of this.#figures) {
      const verdict = f.ok === undefined ? "" : f.ok ? `  ok (${f.target})` : `  MISSED (${f.target})`;
      process.stdout.write(`${f.name.padEnd(28)} ${String(f.value).padStart(10)} ${f.unit}${verdict}\n`);
    }
  }
}

/** Whether a value keeps a target such as ">= 150", "< 8" or "<= 1.5". */
export function meets(value: number, target: string): boolean {
  const parts = /^(>=|<=|<|>) (\d+(?:\.\d+)?)$/.exec(target);
  if (!parts) throw new Error(`a target is an operator and a number: ${target}`);
  const bound = Number(parts[2]);
  switch (parts[1]) {
    case ">=":
      return value >= bound;
    case "<=":
      return value <= bound;
    case "<":
      return value < bound;
    default:
      return value > bound;
  }
}

export function progress(text: string): void {
  process.stderr.write(`${text}\n`);
}

/** The q-th quantile (0 to 1) of a list, by rank. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const at = Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1));
  return sorted[at] ?? Number.NaN;
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** MemAvailable in MiB, after the page cache was dropped. */
export function availableMemoryMiB(): number {
  const line = /MemAvailable:\s+(\d+) kB/.exec(readFileSync("/proc/meminfo", "utf8"));
  return Number(line?.[1] ?? Number.NaN) / 1024;
}
