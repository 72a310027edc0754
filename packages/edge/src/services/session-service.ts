// SessionService: shells that last from call to call.
import { DsecError, printable, randomBase32, type SessionService } from "@dsec/api";
import type { Handlers } from "@dsec/rpc";
import { checkVariables } from "../admission/environment.ts";
import { checkId } from "../commands/check.ts";
import type { EdgeCall } from "../http/call.ts";
import type { Core } from "../lifecycle/core.ts";
import { into, look } from "./calls.ts";

export function sessionService(core: Core): Handlers<typeof SessionService, EdgeCall> {
  return {
    openSession(request, context) {
      return into(core, request.sandboxId, context, async (sandbox) => {
        const { cwd, env, secretEnv, user } = request;
        const sessionId = request.sessionId === "" ? `s${randomBase32(20)}` : checkId(request.sessionId, "session_id");
        if (cwd.includes("\0") || cwd.length > 4095)
          throw new DsecError("INVALID_PATH", `cwd "${printable(cwd)}" is no path`);
        checkVariables(env, "env");
        checkVariables(secretEnv, "secret_env");
        const value = { sessionId, cwd, env, secretEnv, user };
        return { session: await sandbox.running().call({ case: "openSession", value }, "session") };
      });
    },
    closeSession(request, context) {
      return into(core, request.sandboxId, context, async (sandbox) => {
        const value = { sessionId: checkId(request.sessionId, "session_id") };
        await sandbox.running().call({ case: "closeSession", value }, "done");
        return {};
      });
    },
    listSessions(request, context) {
      return look(core, request.sandboxId, context, async (sandbox) => {
        const { sessions } = await sandbox.running().call({ case: "listSessions", value: {} }, "sessions");
        return { sessions };
      });
    },
  };
}
