// CommandService.Stream, answered by hand: see envelope.ts for why.
import type { IncomingMessage, ServerResponse } from "node:http";
import { create } from "@bufbuild/protobuf";
import { parseContentType, parseTimeout } from "@connectrpc/connect/protocol-connect";
import { DsecError, OutputChunkSchema, OutputStream, type StreamRequest } from "@dsec/api";
import { encodeEnd, readBody } from "@dsec/rpc";
import type { Output } from "../aether/output.ts";
import { type Principal, requireRole } from "../auth/principal.ts";
import { BackPressure, passOn } from "../http/back-pressure.ts";
import { breakCause } from "../lifecycle/attach.ts";
import type { Core } from "../lifecycle/core.ts";
import { joinParts } from "../wire/frames.ts";
import { AttachedCommand } from "./attached.ts";
import { checkId, checkSpec, commandId } from "./check.ts";
import { decodeRequest, encodeMessage, outputPrefix } from "./envelope.ts";

export const streamPath = "/dsec.v1.CommandService/Stream";
const largestRequest = 4 * 1024 * 1024;
const longestTimeoutMs = 2 ** 31 - 1;

/** Answers one call; every failure is an end-of-stream error, as Connect wants it. */
export async function handleStream(
  core: Core,
  req: IncomingMessage,
  res: ServerResponse,
  authenticate: () => Principal | Promise<Principal>,
): Promise<void> {
  const type = parseContentType(req.headers["content-type"] ?? null);
  if (!type?.stream || req.method !== "POST") {
    res.writeHead(req.method === "POST" ? 415 : 405).end();
    return;
  }
  const begin = () => {
    if (!res.headersSent)
      res.writeHead(200, { "content-type": `application/connect+${type.binary ? "proto" : "json"}` });
  };
  try {
    const principal = await authenticate();
    requireRole(principal, "developer", "CommandService.Stream");
    const timeout = parseTimeout(header(req, "connect-timeout-ms"), longestTimeoutMs);
    if (timeout.error) throw timeout.error;
    const request = decodeRequest(await readBody(req, largestRequest), type.binary);
    begin();
    await pump(core, request, principal, res, type.binary, timeout.timeoutMs);
  } catch (error) {
    begin();
    res.end(encodeEnd(DsecError.from(error)));
  }
}

function pump(
  core: Core,
  request: StreamRequest,
  principal: Principal,
  res: ServerResponse,
  binary: boolean,
  timeoutMs: number | undefined,
): Promise<void> {
  const sandbox = core.registry.get(request.sandboxId, principal);
  sandbox.running();
  const id = request.spec ? commandId(request.commandId) : checkId(request.commandId, "command_id");
  const stdoutOffset = Number(request.stdoutOffset);
  const stderrOffset = Number(request.stderrOffset);
  const spec = request.spec && checkSpec(request.spec);
  const atStart = stdoutOffset === 0 && stderrOffset === 0;
  const done = sandbox.use();
  return new Promise<void>((resolve, reject) => {
    const call = spec && atStart ? { start: spec } : { stdoutOffset, stderrOffset };
    let timer: NodeJS.Timeout | undefined;
    const finish = (error?: DsecError) => {
      clearTimeout(timer);
      pressure.end();
      res.off("close", left);
      if (!error) {
        res.end(encodeEnd(undefined));
        return resolve();
      }
      breakCause(core, sandbox, error).then(reject, reject);
    };
    const attached = new AttachedCommand(sandbox, id, call, {
      onStarted: (command) => void res.write(encodeMessage({ case: "started", value: command }, binary)),
      onOutput: (output) => {
        if (binary) passOn(res, outputPrefix(output), output.parts, attached.lend());
        else writeJson(res, output);
        pressure.check();
      },
      onEnd: (outcome, error) => {
        if (outcome) res.write(encodeMessage({ case: "ended", value: outcome }, binary));
        finish(
          outcome ? undefined : (error ?? new DsecError("INTERNAL", "the supervisor left the command before its end")),
        );
      },
    });
    const cut = (error: DsecError) => {
      attached.detach();
      finish(error);
    };
    const pressure = new BackPressure(res, attached, () => {
      cut(new DsecError("SLOW_READER", `the output of ${id} was not read for 30 s`));
      dropUnread(res);
    });
    function left() {
      cut(new DsecError("CANCELLED", "the caller left; the command goes on"));
    }
    res.once("close", left);
    if (timeoutMs !== undefined) {
      timer = setTimeout(
        () => cut(new DsecError("DEADLINE_EXCEEDED", "the time for the call is over; the command goes on")),
        timeoutMs,
      );
    }
  }).finally(done);
}

function writeJson(res: ServerResponse, output: Output): void {
  const value = create(OutputChunkSchema, {
    stream: output.stream === "stdout" ? OutputStream.STDOUT : OutputStream.STDERR,
    offset: BigInt(output.offset),
    droppedBytes: BigInt(output.dropped),
    data: joinParts(output.parts, output.length) as Uint8Array<ArrayBuffer>,
  });
  res.write(encodeMessage({ case: "output", value }, false));
}

/** A reader that was cut gets a minute to take what is on the way, the error last. */
export function dropUnread(res: ServerResponse): void {
  const timer = setTimeout(() => res.destroy(), 60_000);
  res.once("close", () => clearTimeout(timer));
}

function header(req: IncomingMessage, name: string): string | null {
  const value = req.headers[name];
  return typeof value === "string" ? value : null;
}
