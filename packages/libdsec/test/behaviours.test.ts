// The table of behaviours that every client library shows: e2e/behaviours/README.md. Python runs it too.
import { readFileSync } from "node:fs";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { onPlatform } from "./support/platform.ts";

interface Step {
  on: string;
  call: string;
  args?: unknown[];
  options?: Record<string, unknown>;
  as?: string;
  gives?: unknown;
  fails?: Record<string, unknown>;
}

const file = new URL("../../../e2e/behaviours/table.json", import.meta.url);
const table = JSON.parse(readFileSync(file, "utf8")) as { name: string; steps: Step[] }[];
const on = onPlatform();

test.for(table)("$name", async ({ steps }) => {
  const { client, sandbox } = on;
  const { layers, projects, keys, nodes } = client;
  const known: Record<string, unknown> = { client, sandbox, files: sandbox.files, layers, projects, keys, nodes };
  for (const step of steps) {
    const what = `${step.on}.${step.call}(${JSON.stringify(step.args ?? []).slice(0, 200)})`;
    if (step.fails) {
      const error = await perform(known, step).then(
        () => expect.fail(`${what} did not fail`),
        (thrown) => thrown,
      );
      expect({ ...(shown(error) as object), code: codeName(error.code) }, what).toMatchObject(step.fails);
      continue;
    }
    const given = await perform(known, step);
    if (step.as !== undefined) known[step.as] = given;
    if (step.gives !== undefined) expectGiven(shown(given), step.gives, what);
  }
});

async function perform(known: Record<string, unknown>, step: Step): Promise<unknown> {
  const target = known[step.on] as Record<string, (...args: unknown[]) => unknown>;
  const args = (step.args ?? []).map(argument);
  const options = argument(step.options ?? {}) as Record<string, unknown>;
  if (step.call === "text") return textOf(target as unknown as AsyncIterable<{ stream: string; data: Uint8Array }>);
  // Calls whose last argument is no object of options here.
  if (step.call === "updateNetwork") return target.updateNetwork?.(...args, options.version);
  const call = target[step.call];
  if (!call) throw new Error(`there is no ${step.on}.${step.call}`);
  const given = await call.call(target, ...args, ...(Object.keys(options).length > 0 ? [options] : []));
  if (given && Symbol.asyncIterator in Object(given) && !("outcome" in (given as object)))
    return collected(given as AsyncIterable<unknown>);
  return given;
}

async function collected(source: AsyncIterable<unknown>): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const one of source) found.push(one);
  return found;
}

async function textOf(stream: AsyncIterable<{ stream: string; data: Uint8Array }>): Promise<Record<string, string>> {
  const text: Record<string, string> = { stdout: "", stderr: "" };
  for await (const { stream: name, data } of stream) text[name] += Buffer.from(data).toString();
  return text;
}

/** {"hex"} and {"repeat", "times"} are contents too long or too odd for JSON. */
function argument(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(argument);
  if (typeof value !== "object" || value === null) return value;
  const { hex, repeat, times } = value as { hex?: string; repeat?: string; times?: number };
  if (hex !== undefined) return Buffer.from(hex, "hex");
  if (repeat !== undefined) return repeat.repeat(times ?? 1);
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, argument(one)]));
}

/** Getters are properties too. */
function shown(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(shown);
  if (typeof value !== "object" || value === null || value instanceof Uint8Array || value instanceof Date) return value;
  const prototype = Object.getPrototypeOf(value);
  const getters = Object.entries(Object.getOwnPropertyDescriptors(prototype ?? {})).filter(([, { get }]) => get);
  return { ...value, ...Object.fromEntries(getters.map(([name]) => [name, (value as Record<string, unknown>)[name]])) };
}

function expectGiven(given: unknown, wanted: unknown, what: string): void {
  const { none, text, hex } = (wanted ?? {}) as { none?: boolean; text?: string; hex?: string };
  if (none) expect(given, what).toBeUndefined();
  else if (text !== undefined) expect(Buffer.from(given as Uint8Array).toString(), what).toBe(text);
  else if (hex !== undefined) expect(Buffer.from(given as Uint8Array).toString("hex"), what).toBe(hex);
  else if (Array.isArray(wanted)) {
    expect(given, what).toHaveLength(wanted.length);
    for (const [i, one] of wanted.entries()) expectGiven((given as unknown[])[i], one, `${what} [${i}]`);
  } else if (typeof wanted === "object" && wanted !== null) {
    for (const [name, one] of Object.entries(wanted)) {
      const found = (given as Record<string, unknown>)[name];
      if (typeof one === "object" && one !== null) expectGiven(found, one, `${what} .${name}`);
      else expect(found, `${what} .${name}`).toEqual(one);
    }
  } else expect(given, what).toEqual(wanted);
}

function codeName(code: Code): string {
  return Code[code].replace(/(?<=[a-z])[A-Z]/g, (letter) => `_${letter}`).toLowerCase();
}
