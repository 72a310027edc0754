// What every Connect call goes through: who calls, with which role, and how it failed.
import { createContextKey, type HandlerContext, type Interceptor } from "@connectrpc/connect";
import { DsecError } from "@dsec/api";
import { type Principal, type PrincipalVerifier, type RoleName, requireRole } from "../auth/principal.ts";
import type { Logger } from "../log.ts";

const principalKey = createContextKey<Principal | undefined>(undefined, { description: "principal" });

/** Methods that a viewer may call; DropLayer needs a builder, all others a developer. */
const viewerMethods = new Set([
  "GetSandbox",
  "ListSandboxes",
  "ListEvents",
  "GetUsage",
  "GetCommand",
  "ListCommands",
  "ListSessions",
  "Snapshot",
  "EdgeList",
]);

export function roleOf(method: string): RoleName {
  if (viewerMethods.has(method)) return "viewer";
  return method === "DropLayer" ? "builder" : "developer";
}

export function makeInterceptor(verifier: PrincipalVerifier, log: Logger): Interceptor {
  return (next) => async (req) => {
    const method = `${req.service.typeName.slice("dsec.v1.".length)}.${req.method.name}`;
    try {
      const token = req.header.get("x-dsec-principal");
      const principal = verifier.cached(token) ?? (await verifier.verify(token));
      requireRole(principal, roleOf(req.method.name), method);
      req.contextValues.set(principalKey, principal);
      return await next(req);
    } catch (error) {
      throw toConnect(error, log, method, req.header.get("x-request-id"));
    }
  };
}

/** The error as the caller gets it; what is a fault of ours is logged. */
export function toConnect(error: unknown, log: Logger, method: string, requestId: string | null | undefined) {
  const known = DsecError.from(error);
  if (known.reason === "INTERNAL") log.error({ err: error, method, requestId }, "a call failed");
  else log.debug({ reason: known.reason, method, requestId }, "a call was refused");
  return known.toConnect();
}

export function principalOf(context: HandlerContext): Principal {
  const principal = context.values.get(principalKey);
  if (!principal) throw new DsecError("UNAUTHENTICATED", "the call has no principal");
  return principal;
}
