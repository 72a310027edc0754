// Paths of callers: bytes, not text. Where they lead is decided inside the sandbox's root, by aether's workers.
import { DsecError } from "@dsec/api";

const longest = 4095;

/** Throws INVALID_PATH where it is empty, too long or holds a NUL byte. */
export function checkPath(path: Uint8Array, field = "path"): Uint8Array<ArrayBuffer> {
  if (path.length === 0) throw new DsecError("INVALID_PATH", `${field} is empty`);
  if (path.length > longest)
    throw new DsecError("INVALID_PATH", `${field} has ${path.length} bytes; at most ${longest} may be`);
  if (path.includes(0)) throw new DsecError("INVALID_PATH", `${field} holds a NUL byte`);
  return path as Uint8Array<ArrayBuffer>;
}

/** One value of a raw query as bytes: percent-encoded, "+" stays "+"; undefined where it is not given. */
export function queryBytes(search: string, name: string): Buffer | undefined {
  for (const pair of search.split("&")) {
    const at = pair.indexOf("=");
    if ((at < 0 ? pair : pair.slice(0, at)) !== name) continue;
    return percentDecode(at < 0 ? "" : pair.slice(at + 1));
  }
  return undefined;
}

function percentDecode(text: string): Buffer {
  const source = Buffer.from(text, "latin1");
  const target = Buffer.allocUnsafe(source.length);
  let end = 0;
  for (let at = 0; at < source.length; at++) {
    const byte = source[at] as number;
    if (byte !== 0x25) {
      target[end++] = byte;
      continue;
    }
    const hex = source.toString("latin1", at + 1, at + 3);
    if (!/^[0-9a-fA-F]{2}$/.test(hex))
      throw new DsecError("INVALID_PATH", "a percent sign of the query is not followed by two hex digits");
    target[end++] = Number.parseInt(hex, 16);
    at += 2;
  }
  return target.subarray(0, end);
}
