// Who calls, as signed by the apiserver in x-dsec-principal.
import { readFileSync } from "node:fs";
import { DsecError } from "@dsec/api";
import { importJWK, type JWK, jwtVerify } from "jose";
import type { Clock } from "../clock.ts";

export const roles = ["viewer", "developer", "builder", "admin"] as const;
export type RoleName = (typeof roles)[number];

export interface Principal {
  readonly keyId: string;
  /** Path of the key's project; "" is above all. */
  readonly project: string;
  readonly role: RoleName;
  readonly expiresAtMs: number;
}

const cacheSize = 10_000;

/** Verifies tokens (EdDSA) and remembers those that were right until they expire. */
export class PrincipalVerifier {
  private readonly key: ReturnType<typeof importJWK>;
  private readonly clock: Clock;
  private readonly known = new Map<string, Principal>();

  constructor(publicKeyFile: string, clock: Clock) {
    this.key = importJWK(JSON.parse(readFileSync(publicKeyFile, "utf8")) as JWK, "EdDSA");
    this.clock = clock;
  }

  /** The principal of a token seen before, without waiting. */
  cached(token: string | undefined | null): Principal | undefined {
    if (!token) return undefined;
    const principal = this.known.get(token);
    if (!principal) return undefined;
    if (principal.expiresAtMs > this.clock.wallMs()) return principal;
    this.known.delete(token);
    return undefined;
  }

  /** Throws UNAUTHENTICATED where there is no token, or one that is wrong or expired. */
  async verify(token: string | undefined | null): Promise<Principal> {
    const cached = this.cached(token);
    if (cached) return cached;
    if (!token) throw new DsecError("UNAUTHENTICATED", "the call has no x-dsec-principal");
    let payload: Record<string, unknown>;
    try {
      const verified = await jwtVerify(token, await this.key, {
        algorithms: ["EdDSA"],
        requiredClaims: ["sub", "exp"],
        currentDate: new Date(this.clock.wallMs()),
      });
      payload = verified.payload;
    } catch {
      throw new DsecError("UNAUTHENTICATED", "the principal's token is not valid");
    }
    const { sub, project, role, exp } = payload;
    if (typeof sub !== "string" || typeof project !== "string" || !isRole(role) || typeof exp !== "number") {
      throw new DsecError("UNAUTHENTICATED", "the principal's token lacks project or role");
    }
    const principal = { keyId: sub, project, role, expiresAtMs: exp * 1000 };
    this.remember(token, principal);
    return principal;
  }

  private remember(token: string, principal: Principal): void {
    this.known.set(token, principal);
    if (this.known.size <= cacheSize) return;
    const oldest = this.known.keys().next().value;
    if (oldest !== undefined) this.known.delete(oldest);
  }
}

function isRole(value: unknown): value is RoleName {
  return typeof value === "string" && (roles as readonly string[]).includes(value);
}

/** Whether a project is the other or lies below it. */
export function isAtOrBelow(project: string, above: string): boolean {
  return above === "" || project === above || project.startsWith(`${above}/`);
}

/** Throws PERMISSION_DENIED where the principal's role is lower. */
export function requireRole(principal: Principal, role: RoleName, what: string): void {
  if (roles.indexOf(principal.role) >= roles.indexOf(role)) return;
  throw new DsecError("PERMISSION_DENIED", `${what} needs the role ${role}; the key has ${principal.role}`);
}
