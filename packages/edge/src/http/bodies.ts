// Plain bodies under /v1/sandboxes/{id}/: files, trees, and the output of commands.
import type { IncomingMessage, ServerResponse } from "node:http";
import { DsecError, printable } from "@dsec/api";
import { type Principal, requireRole } from "../auth/principal.ts";
import { sendOutput, wholeNumber } from "../commands/output-body.ts";
import { download } from "../files/download.ts";
import { checkPath, queryBytes } from "../files/path.ts";
import { upload } from "../files/upload.ts";
import type { Core } from "../lifecycle/core.ts";
import { checkMode } from "../services/file-service.ts";
import { sendJson } from "./errors.ts";

const place = /^\/v1\/sandboxes\/([^/]+)\/(?:(file|tree)|commands\/([^/]+)\/(stdout|stderr))$/;

/** Answers one request whose path begins with /v1/sandboxes/; throws what sendError() answers. */
export async function handleBody(
  core: Core,
  req: IncomingMessage,
  res: ServerResponse,
  principal: Principal,
): Promise<void> {
  const [path = "", search = ""] = split(req.url ?? "");
  const match = place.exec(path);
  if (!match) throw noSuch(req, path);
  requireRole(principal, "developer", `${req.method} ${match[2] ?? match[4]}`);
  const sandbox = core.registry.get(match[1] as string, principal);
  const query = new URLSearchParams(search);
  const [, , kind, commandId, stream] = match;
  if (req.method === "GET" && commandId !== undefined) {
    await sendOutput(core, sandbox, commandId, stream as "stdout" | "stderr", query, res);
    return;
  }
  if (kind === undefined || (req.method !== "GET" && req.method !== "PUT")) throw noSuch(req, path);
  const target = { path: checkPath(queryBytes(search, "path") ?? Buffer.alloc(0)), user: query.get("user") ?? "" };
  if (req.method === "GET") {
    if (kind === "tree") {
      await download(core, sandbox, { case: "readTree", value: target }, undefined, res);
      return;
    }
    const range = { offset: wholeNumber(query, "offset"), length: wholeNumber(query, "length") };
    const value = { ...target, offset: BigInt(range.offset), length: BigInt(range.length) };
    await download(core, sandbox, { case: "readFile", value }, range, res);
    return;
  }
  if (kind === "tree") {
    await upload(core, sandbox, { case: "writeTree", value: target }, req);
  } else {
    const value = { ...target, mode: modeOf(query), parents: query.get("parents") === "1" };
    await upload(core, sandbox, { case: "writeFile", value }, req);
  }
  sendJson(res, {});
}

function modeOf(query: URLSearchParams): number {
  const text = query.get("mode") ?? "0";
  if (!/^[0-7]{1,5}$/.test(text))
    throw new DsecError("INVALID_ARGUMENT", `mode is "${printable(text)}"; octal digits belong there`);
  return checkMode(Number.parseInt(text, 8));
}

export function split(url: string): [string, string] {
  const at = url.indexOf("?");
  return at < 0 ? [url, ""] : [url.slice(0, at), url.slice(at + 1)];
}

export function noSuch(req: IncomingMessage, path: string): DsecError {
  return new DsecError("NO_SUCH_METHOD", `${req.method} ${printable(path)} is not known here`);
}
