import { DsecError } from "./dsec-error.ts";

const sandboxId = /^([a-z][a-z0-9]{0,11})([a-z2-7]{20})$/;
const edgeName = /^[a-z][a-z0-9]{0,11}$/;

/** The name of the edge that made a sandbox ID; the rest is 20 random base32 characters. */
export function edgeOfSandboxId(id: string): string {
  const edge = sandboxId.exec(id)?.[1];
  if (edge === undefined) throw new DsecError("SANDBOX_NOT_FOUND", `"${printable(id)}" is not a sandbox ID`);
  return edge;
}

export function isEdgeName(name: string): boolean {
  return edgeName.test(name);
}

/** At most 64 characters of text from outside, without control characters. */
export function printable(text: string): string {
  const safe = JSON.stringify(text).slice(1, -1);
  return safe.length > 64 ? `${safe.slice(0, 63)}…` : safe;
}

const letters = "abcdefghijklmnopqrstuvwxyz234567";
/** Random bytes fetched at once: one trip to the generator costs more than the bytes. */
const pool = new Uint8Array(4096);
let poolUsed = pool.length;

/** Random lower-case base32 characters, 5 bits each. */
export function randomBase32(length: number): string {
  if (poolUsed + length > pool.length) {
    crypto.getRandomValues(pool);
    poolUsed = 0;
  }
  let text = "";
  for (let i = 0; i < length; i++) text += letters[(pool[poolUsed + i] as number) & 31];
  pool.fill(0, poolUsed, poolUsed + length);
  poolUsed += length;
  return text;
}
