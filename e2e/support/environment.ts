// What the sandboxes of these tests are made of: a small Debian with python3, made once a checkout.
import { createReadStream, createWriteStream, existsSync } from "node:fs";
import { mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { buildDebianBase } from "@dsec/cli/debian";
import type { DSecClient } from "@dsec/libdsec";

const cache = join(import.meta.dirname, "../../.dsec/cache");
export const baseTar = join(cache, "test-base.tar");

/** Called once before all tests (vitest's globalSetup). */
export async function makeBaseTar(): Promise<void> {
  if (existsSync(baseTar)) return;
  await mkdir(cache, { recursive: true });
  const temporary = `${baseTar}.${process.pid}`;
  await pipeline(await buildDebianBase({ packages: ["python3", "procps", "adduser"] }), createWriteStream(temporary));
  await rename(temporary, baseTar);
}

/** Imports the base as "base"; create with `containerImage: "base"`. */
export async function importBase(client: DSecClient): Promise<void> {
  await client.layers.import({ kind: "base", name: "base", format: "tar", body: createReadStream(baseTar) });
}
