import type { IncomingMessage } from "node:http";

const maxBytes = 256 * 1024 * 1024;
const maxMs = 30_000;

/**
 * Reads what is left of a body that was answered before its end, and drops it: a caller that is still sending would lose
 * the answer with the connection. Bounded in bytes and time.
 */
export function drain(request: IncomingMessage): void {
  if (request.complete || request.destroyed) return;
  let left = maxBytes;
  const late = setTimeout(() => request.socket.destroy(), maxMs);
  request.on("data", (bytes: Buffer) => {
    left -= bytes.length;
    if (left < 0) request.socket.destroy();
  });
  request.once("close", () => clearTimeout(late));
  request.once("end", () => clearTimeout(late));
  request.on("error", () => {});
  request.resume();
}
