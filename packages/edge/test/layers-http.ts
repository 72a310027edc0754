// What a server around the layers answers in their tests.
import type { ServerResponse } from "node:http";
import { DsecError } from "@dsec/api";

export function errorOf(res: ServerResponse, error: unknown): void {
  res.statusCode = 400;
  res.end(DsecError.from(error).reason);
}
