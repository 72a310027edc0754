import type { IncomingMessage } from "node:http";
import { DsecError } from "@dsec/api";

/** Throws UNAUTHENTICATED where there is no key. */
export function bearerOf(request: IncomingMessage): string {
  const value = request.headers.authorization;
  if (value === undefined)
    throw new DsecError("UNAUTHENTICATED", "the call has no key: send `Authorization: Bearer KEY`");
  const space = value.indexOf(" ");
  if (space < 0 || value.slice(0, space).toLowerCase() !== "bearer") {
    throw new DsecError("UNAUTHENTICATED", "the Authorization header is not `Bearer KEY`");
  }
  return value.slice(space + 1).trim();
}
