// A call into a sandbox: found for its caller, counted as use, and told the truth when the sandbox ends under it.
import { DsecError } from "@dsec/api";
import type { EdgeCall } from "../http/call.ts";
import { breakCause } from "../lifecycle/attach.ts";
import type { Core } from "../lifecycle/core.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";

export async function into<T>(
  core: Core,
  sandboxId: string,
  context: EdgeCall,
  work: (sandbox: Sandbox) => Promise<T>,
): Promise<T> {
  const sandbox = core.registry.get(sandboxId, context.principal);
  sandbox.running();
  const done = sandbox.use();
  try {
    return await work(sandbox);
  } catch (error) {
    throw await breakCause(core, sandbox, DsecError.from(error));
  } finally {
    done();
  }
}

/** The same for calls that only look and are no use. */
export async function look<T>(
  core: Core,
  sandboxId: string,
  context: EdgeCall,
  work: (sandbox: Sandbox) => Promise<T>,
): Promise<T> {
  const sandbox = core.registry.get(sandboxId, context.principal);
  try {
    return await work(sandbox);
  } catch (error) {
    throw await breakCause(core, sandbox, DsecError.from(error));
  }
}
