// PUT of a file or a tree: a plain body as frames to aether. What is not whole is not put in place.
import type { IncomingMessage } from "node:http";
import { type AetherReply, DsecError } from "@dsec/api";
import { type AetherCall, AetherConnection, aetherError } from "../aether/connection.ts";
import { asDsecError } from "../aether/control.ts";
import { breakCause } from "../lifecycle/attach.ts";
import type { Core } from "../lifecycle/core.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import { frameHeader, frameKind, ProtocolError } from "../wire/frames.ts";

const callId = 2;
const largestPiece = 1024 * 1024;

/** Resolves once aether says that all is in place; a body that breaks off leaves what was there before. */
export function upload(core: Core, sandbox: Sandbox, call: AetherCall, req: IncomingMessage): Promise<void> {
  sandbox.running();
  const done = sandbox.use();
  return new Promise<void>((resolve, reject) => {
    let finished = false;
    let sent = false;
    const connection = new AetherConnection(sandbox.socketPath, sandbox.id, {
      onReply: (reply) => onReply(reply),
      onClose: (error) => {
        if (finished) return;
        if (error instanceof ProtocolError) sandbox.hostile(error);
        finish(asDsecError(error, sandbox.id));
      },
    });
    const finish = (error?: DsecError) => {
      if (finished) return;
      finished = true;
      req.off("data", onData).off("end", onEnd).off("close", onEnd);
      connection.close();
      if (error) breakCause(core, sandbox, error).then(reject, reject);
      else resolve();
    };
    const onReply = (reply: AetherReply) => {
      if (finished) return;
      const { result } = reply;
      if (reply.id !== callId) throw new ProtocolError(`aether answered a call that was not made: ${reply.id}`);
      if (result.case === "error") finish(aetherError(result.value));
      else if (result.case === "done" && sent) finish();
      else throw new ProtocolError(`aether answered ${result.case} to a write`);
    };
    const onData = (chunk: Buffer) => {
      let room = true;
      for (let at = 0; at < chunk.length; at += largestPiece) {
        room = connection.sendBytes(chunk.subarray(at, at + largestPiece));
      }
      if (room) return;
      req.pause();
      connection.wire.socket.once("drain", () => req.resume());
    };
    const onEnd = () => {
      if (sent || finished) return;
      if (!req.complete) {
        finish(new DsecError("CANCELLED", "the body broke off before its end; nothing was put in place"));
        return;
      }
      sent = true;
      connection.wire.write(frameHeader(frameKind.stdout, 0));
    };
    connection.send(callId, call);
    req.on("data", onData).on("end", onEnd).on("close", onEnd);
  }).finally(done);
}
