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

/** Random lower-case base32 characters, 5 bits each. */
export function randomBase32(length: number): string {
  const bytes = crypto.getRandomValues(new Uint8Array(length));
  return Array.from(bytes, (b) => letters[b & 31]).join("");
}
