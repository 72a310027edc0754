// The edge's Connect methods: who may call them, and their table.
import { CommandService, EdgeService, FileService, SandboxService, SessionService } from "@dsec/api";
import { addService, type OwnMethod, type OwnStream } from "@dsec/rpc";
import type { RoleName } from "../auth/principal.ts";
import { commandService } from "../services/command-service.ts";
import { edgeService } from "../services/edge-service.ts";
import { fileService } from "../services/file-service.ts";
import { sandboxService } from "../services/sandbox-service.ts";
import { sessionService } from "../services/session-service.ts";
import type { EdgeCall } from "./call.ts";
import type { Parts } from "./server.ts";

export type Methods = ReadonlyMap<string, OwnMethod<EdgeCall> | OwnStream<EdgeCall>>;

export function edgeMethods({ core, ender, creator, layers }: Parts): Methods {
  const table = new Map<string, OwnMethod<EdgeCall> | OwnStream<EdgeCall>>();
  addService(table, SandboxService, sandboxService(core, ender));
  addService(table, CommandService, commandService(core));
  addService(table, SessionService, sessionService(core));
  addService(table, FileService, fileService(core));
  addService(table, EdgeService, edgeService(core, creator, layers));
  return table;
}

export function isStream(method: OwnMethod<EdgeCall> | OwnStream<EdgeCall>): method is OwnStream<EdgeCall> {
  return method.method.methodKind === "server_streaming";
}

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
