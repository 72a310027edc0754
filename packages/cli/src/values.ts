// Values of options: sizes, times, pairs.
import { InvalidArgumentError } from "commander";

/** "512", "512m", "4g", "4GiB" → MiB. */
export function mebibytes(text: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*(k|m|g|t)?i?b?$/i.exec(text);
  if (!match) throw new InvalidArgumentError("a size is wanted, such as 512m or 4g (without a unit: MiB)");
  const factor = { k: 1 / 1024, m: 1, g: 1024, t: 1024 * 1024 }[(match[2] ?? "m").toLowerCase()] ?? 1;
  return Math.ceil(Number(match[1]) * factor);
}

/** "300", "300s", "5m", "2h", "1d", "250ms" → milliseconds. */
export function milliseconds(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(text);
  if (!match) throw new InvalidArgumentError("a time is wanted, such as 30s, 5m or 2h (without a unit: seconds)");
  const factor = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }[match[2] ?? "s"] ?? 1000;
  return Math.round(Number(match[1]) * factor);
}

export function positive(text: string): number {
  const value = Number(text);
  if (!(value > 0) || !Number.isFinite(value)) throw new InvalidArgumentError("a number above 0 is wanted");
  return value;
}

export function count(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0) throw new InvalidArgumentError("a whole number is wanted");
  return value;
}

/** Gathers NAME=VALUE; a NAME alone takes the value of our own environment. */
export function pair(text: string, before: Record<string, string> = {}): Record<string, string> {
  const at = text.indexOf("=");
  if (at === 0 || text === "") throw new InvalidArgumentError("NAME=VALUE is wanted");
  if (at > 0) return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
  const own = process.env[text];
  if (own === undefined)
    throw new InvalidArgumentError(`NAME=VALUE is wanted, or the name of a variable that is set; ${text} is not`);
  return { ...before, [text]: own };
}

/** Gathers an option that may be given several times. */
export function several(text: string, before: string[] = []): string[] {
  return [...before, text];
}

/** "npm", "npm=yes", "example.org=no". */
export function rule(text: string, before: Record<string, boolean> = {}): Record<string, boolean> {
  const [name = "", value = "yes"] = text.split("=", 2);
  if (name === "" || !/^(yes|no|true|false)$/.test(value))
    throw new InvalidArgumentError("a service or domain is wanted, with =yes or =no");
  return { ...before, [name]: value === "yes" || value === "true" };
}
