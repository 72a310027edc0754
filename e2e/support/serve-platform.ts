// A platform for tests in another language: starts one, says where it is in a line of JSON, and ends with its standard
// input, so that it goes even when whoever started it is killed. Lines that come in act on it: {"kill":NAME},
// {"start":NAME}; each is answered by a line.
import { createInterface } from "node:readline";
import { importBase, makeBaseTar } from "./environment.ts";
import { Platform, type PlatformOptions } from "./platform.ts";

const platform = await Platform.start(JSON.parse(process.argv[2] ?? "{}") as PlatformOptions);
const say = (value: unknown) => process.stdout.write(`${JSON.stringify(value)}\n`);
try {
  await makeBaseTar();
  await importBase(platform.client());
  say({ endpoint: platform.endpoint(), apiKey: platform.apiKey, edges: platform.edges, dir: platform.dir });
  for await (const line of createInterface({ input: process.stdin })) {
    const { kill, start } = JSON.parse(line) as { kill?: string; start?: string };
    if (kill !== undefined) await platform.kill(kill);
    if (start !== undefined) await platform.startProgram(start);
    say({ done: line });
  }
} finally {
  await platform[Symbol.asyncDispose]();
}
