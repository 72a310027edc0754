// GET /v1/sandboxes/{id}/commands/{cid}/stdout|stderr?offset=N[&follow=1]: plain bytes of one stream.
import type { ServerResponse } from "node:http";
import { DsecError } from "@dsec/api";
import { BackPressure, passOn } from "../http/back-pressure.ts";
import { breakCause } from "../lifecycle/attach.ts";
import type { Core } from "../lifecycle/core.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import { AttachedCommand } from "./attached.ts";
import { checkId } from "./check.ts";
import { dropUnread } from "./stream.ts";

/** An offset that no output reaches: the other stream stays silent. */
const beyondAll = Number.MAX_SAFE_INTEGER;

/**
 * The body is what is kept from the offset on; with follow, until the command ends. The header x-dsec-dropped counts
 * the bytes missing just before the body's first, the trailer of the same name those missing in all.
 */
export function sendOutput(
  core: Core,
  sandbox: Sandbox,
  commandId: string,
  stream: "stdout" | "stderr",
  query: URLSearchParams,
  res: ServerResponse,
): Promise<void> {
  sandbox.running();
  checkId(commandId, "command_id");
  const offset = wholeNumber(query, "offset");
  const follow = query.get("follow") === "1";
  const done = sandbox.use();
  let dropped = 0;
  return new Promise<void>((resolve, reject) => {
    const begin = () => {
      if (res.headersSent) return;
      res.writeHead(200, {
        "content-type": "application/octet-stream",
        "x-dsec-dropped": String(dropped),
        trailer: "x-dsec-dropped",
      });
    };
    const finish = (error?: DsecError) => {
      pressure.end();
      res.off("close", left);
      if (error) {
        breakCause(core, sandbox, error).then(reject, reject);
        return;
      }
      begin();
      res.addTrailers({ "x-dsec-dropped": String(dropped) });
      res.end();
      resolve();
    };
    const offsets =
      stream === "stdout"
        ? { stdoutOffset: offset, stderrOffset: beyondAll }
        : { stdoutOffset: beyondAll, stderrOffset: offset };
    const attached = new AttachedCommand(
      sandbox,
      commandId,
      { ...offsets, recordedOnly: !follow },
      {
        onOutput: (output) => {
          if (output.stream !== stream) return;
          dropped += output.dropped;
          begin();
          passOn(res, undefined, output.parts, attached.lend());
          pressure.check();
        },
        onEnd: (_outcome, error) => finish(error),
      },
    );
    const pressure = new BackPressure(res, attached, () => {
      attached.detach();
      dropUnread(res);
      finish(new DsecError("SLOW_READER", `the output of ${commandId} was not read for 30 s`));
    });
    function left() {
      attached.detach();
      finish(new DsecError("CANCELLED", "the caller left"));
    }
    res.once("close", left);
  }).finally(done);
}

/** A number of a query, 0 where it is not given. */
export function wholeNumber(query: URLSearchParams, name: string): number {
  const text = query.get(name) ?? "0";
  const value = Number(text);
  if (/^\d{1,16}$/.test(text) && Number.isSafeInteger(value)) return value;
  throw new DsecError("INVALID_ARGUMENT", `${name} is no whole number`);
}
