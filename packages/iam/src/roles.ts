// Who may call what: the one table of methods and roles, and the rule on projects.
import { DsecError, Role } from "@dsec/api";
import { isAtOrBelow, publicProject, rootProject } from "./paths.ts";

export type RoleName = "viewer" | "developer" | "builder" | "admin";

const rank: Record<RoleName, number> = { viewer: 1, developer: 2, builder: 3, admin: 4 };

/** Lowest role for each method and plain path; what is not here is not served. */
export const minimumRole = {
  "dsec.v1.SandboxService/CreateSandbox": "developer",
  "dsec.v1.SandboxService/GetSandbox": "viewer",
  "dsec.v1.SandboxService/ListSandboxes": "viewer",
  "dsec.v1.SandboxService/StopSandbox": "developer",
  "dsec.v1.SandboxService/DeleteSandbox": "developer",
  "dsec.v1.SandboxService/ExtendSandbox": "developer",
  "dsec.v1.SandboxService/ListEvents": "viewer",
  "dsec.v1.SandboxService/GetUsage": "viewer",
  "dsec.v1.SandboxService/UpdateNetwork": "developer",
  "dsec.v1.CommandService/Exec": "developer",
  "dsec.v1.CommandService/Start": "developer",
  "dsec.v1.CommandService/Stream": "developer",
  "dsec.v1.CommandService/Wait": "developer",
  "dsec.v1.CommandService/GetCommand": "viewer",
  "dsec.v1.CommandService/ListCommands": "viewer",
  "dsec.v1.CommandService/Signal": "developer",
  "dsec.v1.CommandService/WriteInput": "developer",
  "dsec.v1.CommandService/ResizePty": "developer",
  "dsec.v1.SessionService/OpenSession": "developer",
  "dsec.v1.SessionService/CloseSession": "developer",
  "dsec.v1.SessionService/ListSessions": "viewer",
  "dsec.v1.FileService/Stat": "developer",
  "dsec.v1.FileService/ListDirectory": "developer",
  "dsec.v1.FileService/MakeDirectory": "developer",
  "dsec.v1.FileService/Move": "developer",
  "dsec.v1.FileService/Remove": "developer",
  "dsec.v1.FileService/Watch": "developer",
  "/v1/sandboxes/": "developer",
  "/v1/layers": "builder",
  "dsec.v1.LayerService/ListLayers": "viewer",
  "dsec.v1.LayerService/GetLayer": "viewer",
  "dsec.v1.LayerService/DeleteLayer": "builder",
  "dsec.v1.NodeService/ListNodes": "viewer",
  "dsec.v1.IamService/WhoAmI": "viewer",
  "dsec.v1.IamService/CreateProject": "admin",
  "dsec.v1.IamService/ListProjects": "viewer",
  "dsec.v1.IamService/DeleteProject": "admin",
  "dsec.v1.IamService/SetQuota": "admin",
  "dsec.v1.IamService/CreateKey": "admin",
  "dsec.v1.IamService/ListKeys": "admin",
  "dsec.v1.IamService/RevokeKey": "admin",
} as const satisfies Record<string, RoleName>;

export type Method = keyof typeof minimumRole;

export function isMethod(name: string): name is Method {
  return Object.hasOwn(minimumRole, name);
}

/** Who makes a call. */
export interface Principal {
  readonly keyId: string;
  /** Path; the principal acts there and below. */
  readonly project: string;
  readonly role: RoleName;
}

/** Throws PERMISSION_DENIED when the principal's role is too low for the method. */
export function authorise(principal: Principal, method: Method): void {
  const wanted = minimumRole[method];
  if (rank[principal.role] >= rank[wanted]) return;
  throw new DsecError(
    "PERMISSION_DENIED",
    `${method} needs the role ${wanted} or higher; key ${principal.keyId} is ${principal.role} in ${principal.project}`,
  );
}

export function holdsRole(principal: Principal, role: RoleName): boolean {
  return rank[principal.role] >= rank[role];
}

/** At and below its own project; principals of the root project also act in public/. */
export function actsIn(principal: Principal, project: string): boolean {
  if (isAtOrBelow(project, principal.project)) return true;
  return principal.project === rootProject && isAtOrBelow(project, publicProject);
}

/** Throws PROJECT_NOT_FOUND: another's project looks like one that is not there. */
export function checkActsIn(principal: Principal, project: string): void {
  if (actsIn(principal, project)) return;
  throw new DsecError("PROJECT_NOT_FOUND", `there is no project "${project}" at or below ${principal.project}`);
}

export function roleFromProto(role: Role): RoleName {
  switch (role) {
    case Role.VIEWER:
      return "viewer";
    case Role.DEVELOPER:
      return "developer";
    case Role.BUILDER:
      return "builder";
    case Role.ADMIN:
      return "admin";
    default:
      throw new DsecError("INVALID_ARGUMENT", "the role is missing: viewer, developer, builder or admin");
  }
}

export function roleToProto(role: RoleName): Role {
  return { viewer: Role.VIEWER, developer: Role.DEVELOPER, builder: Role.BUILDER, admin: Role.ADMIN }[role];
}

/** A role as it is in the database. */
export function roleFromText(text: string): RoleName {
  if (Object.hasOwn(rank, text)) return text as RoleName;
  throw new Error(`unknown role in the database: ${text}`);
}
