// GET of a file or a tree: aether's frames as a plain body.
import type { ServerResponse } from "node:http";
import { type AetherReply, DsecError, type FileInfo } from "@dsec/api";
import { type AetherCall, AetherConnection, aetherError } from "../aether/connection.ts";
import { asDsecError } from "../aether/control.ts";
import { BackPressure, passOn } from "../http/back-pressure.ts";
import { breakCause } from "../lifecycle/attach.ts";
import type { Core } from "../lifecycle/core.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import { type Frame, frameKind, ProtocolError } from "../wire/frames.ts";

const callId = 2;

export interface Range {
  readonly offset: number;
  /** 0: to the end. */
  readonly length: number;
}

/** Sends the body; a fault after its first byte cuts the answer, so that nobody takes a part for the whole. */
export function download(
  core: Core,
  sandbox: Sandbox,
  call: AetherCall,
  range: Range | undefined,
  res: ServerResponse,
): Promise<void> {
  sandbox.running();
  const done = sandbox.use();
  return new Promise<void>((resolve, reject) => {
    const connection = new AetherConnection(sandbox.socketPath, sandbox.id, {
      onReply: (reply) => onReply(reply),
      onBytes: (frame) => onBytes(frame),
      onClose: (error) => {
        if (finished) return;
        if (error instanceof ProtocolError) sandbox.hostile(error);
        finish(asDsecError(error, sandbox.id));
      },
    });
    let finished = false;
    let missing = Number.POSITIVE_INFINITY;
    const pressure = new BackPressure(
      res,
      { pause: () => connection.wire.pause(), resume: () => connection.wire.resume() },
      () => finish(new DsecError("SLOW_READER", "the body was not read for 30 s")),
    );
    const left = () => finish(new DsecError("CANCELLED", "the caller left"));
    res.once("close", left);
    const finish = (error?: DsecError) => {
      if (finished) return;
      finished = true;
      pressure.end();
      res.off("close", left);
      connection.close();
      if (error) {
        breakCause(core, sandbox, error).then(reject, reject);
        return;
      }
      begin(undefined);
      res.end();
      resolve();
    };
    const begin = (file: FileInfo | undefined) => {
      if (res.headersSent) return;
      res.setHeader("content-type", range ? "application/octet-stream" : "application/x-tar");
      if (file && range) {
        res.setHeader("x-dsec-size", String(file.sizeBytes));
        res.setHeader("x-dsec-mode", file.mode.toString(8).padStart(4, "0"));
        // Files of /proc say 0 and have contents.
        if (file.sizeBytes > 0n) {
          const rest = Math.max(0, Number(file.sizeBytes) - range.offset);
          missing = range.length > 0 ? Math.min(range.length, rest) : rest;
          res.setHeader("content-length", missing);
        }
      }
      res.writeHead(200);
    };
    const onReply = (reply: AetherReply) => {
      if (finished) return;
      const { result } = reply;
      if (reply.id !== callId) throw new ProtocolError(`aether answered a call that was not made: ${reply.id}`);
      if (result.case === "error") finish(aetherError(result.value));
      else if (result.case === "stat" && range && !res.headersSent) begin(result.value.file);
      else if (result.case === "done") finish(missing > 0 && missing < Number.POSITIVE_INFINITY ? shrank() : undefined);
      else throw new ProtocolError(`aether answered ${result.case} to a read`);
    };
    const onBytes = (frame: Frame) => {
      if (finished) return;
      if (frame.kind !== frameKind.stdout) throw new ProtocolError("aether sent contents of a wrong kind");
      begin(undefined);
      const parts: Uint8Array[] = [];
      for (const part of frame.parts) {
        // A file that grows while it is read ends where its size said.
        const taken = part.length > missing ? part.subarray(0, missing) : part;
        if (taken.length > 0) parts.push(taken);
        missing -= taken.length;
      }
      const { mark } = connection.wire;
      passOn(res, undefined, parts, () => connection.wire.recycle(mark));
      if (missing === 0) finish();
      else pressure.check();
    };
    connection.send(callId, call);
  }).finally(done);
}

function shrank(): DsecError {
  return new DsecError("FILE_FAILED", "the file became shorter while it was read");
}
