// CommandService, but for Stream, which commands/stream.ts answers by hand.
import { type CommandService, DsecError, printable } from "@dsec/api";
import type { Handlers } from "@dsec/rpc";
import { checkId, checkSize, checkSpec, commandId, signalNumber } from "../commands/check.ts";
import { collect, runCollected } from "../commands/collect.ts";
import { resultReply } from "../commands/result-reply.ts";
import { maximums } from "../defaults.ts";
import type { EdgeCall } from "../http/call.ts";
import type { Core } from "../lifecycle/core.ts";
import { into, look } from "./calls.ts";

export function commandService(core: Core): Handlers<typeof CommandService, EdgeCall> {
  return {
    exec(request, context) {
      return into(core, request.sandboxId, context, async (sandbox) => {
        const spec = checkSpec(request.spec);
        const { signal } = context;
        return resultReply(await runCollected(sandbox, commandId(request.commandId), spec, { signal }));
      });
    },
    start(request, context) {
      return into(core, request.sandboxId, context, async (sandbox) => {
        const spec = checkSpec(request.spec);
        const call = { commandId: commandId(request.commandId), spec, attach: false };
        return { command: await sandbox.running().call({ case: "start", value: call }, "command") };
      });
    },
    wait(request, context) {
      return into(core, request.sandboxId, context, async (sandbox) => {
        const id = checkId(request.commandId, "command_id");
        const waitMs = Number(request.waitMs);
        if (waitMs > maximums.waitMs) {
          throw new DsecError("INVALID_ARGUMENT", `wait_ms is ${waitMs}; at most ${maximums.waitMs} may be`);
        }
        const call = { stdoutOffset: 0, stderrOffset: 0, recordedOnly: waitMs === 0 };
        // The record has its own cap, so nothing of it is cut here.
        const cap = maximums.outputCapBytes;
        const late = AbortSignal.timeout(waitMs === 0 ? maximums.waitMs : waitMs);
        const signal = AbortSignal.any([context.signal, late]);
        try {
          const result = await collect(sandbox, id, call, { signal, cap });
          return result ? resultReply(result) : {};
        } catch (error) {
          if (late.aborted && !context.signal.aborted && waitMs > 0) return {};
          throw error;
        }
      });
    },
    getCommand(request, context) {
      return look(core, request.sandboxId, context, async (sandbox) => {
        const value = { commandId: checkId(request.commandId, "command_id") };
        return { command: await sandbox.running().call({ case: "getCommand", value }, "command") };
      });
    },
    listCommands(request, context) {
      return look(core, request.sandboxId, context, async (sandbox) => {
        const limit = request.pageSize || 100;
        if (limit > maximums.pageSize) {
          throw new DsecError("INVALID_ARGUMENT", `page_size is ${limit}; at most ${maximums.pageSize} may be`);
        }
        if (!/^\d{0,18}$/.test(request.pageToken)) {
          throw new DsecError(
            "INVALID_ARGUMENT",
            `page_token is "${printable(request.pageToken)}", which is none of ours`,
          );
        }
        const value = { from: BigInt(request.pageToken || 0), limit, runningOnly: request.runningOnly };
        const { commands, next } = await sandbox.running().call({ case: "listCommands", value }, "commands");
        return { commands, nextPageToken: next > 0n ? String(next) : "" };
      });
    },
    signal(request, context) {
      return into(core, request.sandboxId, context, async (sandbox) => {
        const value = {
          commandId: checkId(request.commandId, "command_id"),
          signal: signalNumber(request.signal),
          wholeTree: request.wholeTree,
        };
        await sandbox.running().call({ case: "signal", value }, "done");
        return {};
      });
    },
    writeInput(request, context) {
      return into(core, request.sandboxId, context, async (sandbox) => {
        const { offset, data, endOfFile } = request;
        if (data.length > maximums.stdinBytes) {
          throw new DsecError(
            "TOO_LARGE",
            `data has ${data.length} bytes; at most ${maximums.stdinBytes} may be in one call`,
          );
        }
        const value = { commandId: checkId(request.commandId, "command_id"), offset, data, endOfFile };
        return await sandbox.running().call({ case: "input", value }, "input");
      });
    },
    resizePty(request, context) {
      return into(core, request.sandboxId, context, async (sandbox) => {
        const value = { commandId: checkId(request.commandId, "command_id"), size: checkSize(request.size) };
        await sandbox.running().call({ case: "resize", value }, "done");
        return {};
      });
    },
  };
}
