// Changes below a directory, as aether tells them, until the caller leaves.
import type { WatchRequest, WatchResponse } from "@dsec/api";
import { AetherConnection, aetherError } from "../aether/connection.ts";
import { asDsecError } from "../aether/control.ts";
import { breakCause } from "../lifecycle/attach.ts";
import type { Core } from "../lifecycle/core.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import { ProtocolError } from "../wire/frames.ts";

const callId = 2;
const mostWaiting = 64;

/** A watch does not hold the idle time by itself: only its start counts as a call. */
export async function* watch(
  core: Core,
  sandbox: Sandbox,
  request: WatchRequest,
  signal: AbortSignal,
): AsyncGenerator<WatchResponse> {
  sandbox.running();
  sandbox.use()();
  const waiting: WatchResponse[] = [];
  let failure: Error | undefined;
  let ended = false;
  let wake: () => void = () => {};
  const connection = new AetherConnection(sandbox.socketPath, sandbox.id, {
    onReply: (reply) => {
      if (reply.id !== callId) throw new ProtocolError(`aether answered a call that was not made: ${reply.id}`);
      if (reply.result.case === "watch") waiting.push(reply.result.value);
      else if (reply.result.case === "error") failure = aetherError(reply.result.value);
      else if (reply.result.case === "done") ended = true;
      else throw new ProtocolError(`aether answered ${reply.result.case} to a watch`);
      if (waiting.length >= mostWaiting) connection.wire.pause();
      wake();
    },
    onClose: (error) => {
      if (error instanceof ProtocolError) sandbox.hostile(error);
      failure ??= asDsecError(error, sandbox.id);
      wake();
    },
  });
  const left = () => connection.close();
  signal.addEventListener("abort", left, { once: true });
  try {
    connection.send(callId, { case: "watch", value: request });
    for (;;) {
      for (let next = waiting.shift(); next; next = waiting.shift()) yield next;
      connection.wire.resume();
      if (ended || signal.aborted) return;
      if (failure) throw await breakCause(core, sandbox, asDsecError(failure, sandbox.id));
      await new Promise<void>((resolve) => {
        wake = resolve;
        if (waiting.length > 0 || failure || ended) resolve();
      });
    }
  } finally {
    signal.removeEventListener("abort", left);
    connection.close();
  }
}
