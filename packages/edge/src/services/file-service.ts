// FileService: system calls inside the sandbox's root, done by aether's workers.
import { DsecError, type FileService } from "@dsec/api";
import type { Handlers } from "@dsec/rpc";
import { checkPath } from "../files/path.ts";
import { watch } from "../files/watch.ts";
import type { EdgeCall } from "../http/call.ts";
import type { Core } from "../lifecycle/core.ts";
import { into } from "./calls.ts";

const largestMode = 0o7777;

export function fileService(core: Core): Handlers<typeof FileService, EdgeCall> {
  return {
    stat(request, context) {
      return into(core, request.sandboxId, context, async (sandbox) => {
        checkPath(request.path);
        return await sandbox.running().call({ case: "stat", value: request }, "stat");
      });
    },
    listDirectory(request, context) {
      return into(core, request.sandboxId, context, async (sandbox) => {
        checkPath(request.path);
        if (request.pageSize > 10_000) {
          throw new DsecError("INVALID_ARGUMENT", `page_size is ${request.pageSize}; at most 10000 may be`);
        }
        return await sandbox.running().call({ case: "listDirectory", value: request }, "directory");
      });
    },
    makeDirectory(request, context) {
      return into(core, request.sandboxId, context, async (sandbox) => {
        checkPath(request.path);
        checkMode(request.mode);
        await sandbox.running().call({ case: "makeDirectory", value: request }, "done");
        return {};
      });
    },
    move(request, context) {
      return into(core, request.sandboxId, context, async (sandbox) => {
        checkPath(request.fromPath, "from_path");
        checkPath(request.toPath, "to_path");
        await sandbox.running().call({ case: "move", value: request }, "done");
        return {};
      });
    },
    remove(request, context) {
      return into(core, request.sandboxId, context, async (sandbox) => {
        checkPath(request.path);
        await sandbox.running().call({ case: "remove", value: request }, "done");
        return {};
      });
    },
    async *watch(request, context) {
      const sandbox = core.registry.get(request.sandboxId, context.principal);
      checkPath(request.path);
      yield* watch(core, sandbox, request, context.signal);
    },
  };
}

export function checkMode(mode: number): number {
  if (mode <= largestMode) return mode;
  throw new DsecError("INVALID_ARGUMENT", `mode is 0${mode.toString(8)}; at most 07777 may be`);
}
