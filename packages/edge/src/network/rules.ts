// Network rules: a service or a domain, and whether it is allowed. They are checked and kept; egress is not there yet.
import { create } from "@bufbuild/protobuf";
import { DsecError, type Notice, NoticeSchema, printable } from "@dsec/api";
import { maximums } from "../defaults.ts";

export const services = ["npm", "pypi", "crates", "go", "debian", "maven"] as const;

const domain =
  /^(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?(?::([1-9][0-9]{0,4}))?$/i;

/** Throws INVALID_NETWORK_RULE where a name is neither a service nor a domain with an optional wildcard and port. */
export function checkRules(allow: Readonly<Record<string, boolean>>): void {
  const names = Object.keys(allow);
  if (names.length > maximums.networkRules) {
    throw new DsecError(
      "INVALID_NETWORK_RULE",
      `${names.length} rules were given; at most ${maximums.networkRules} may be`,
    );
  }
  for (const name of names) {
    if (!isRule(name)) {
      const known = services.join(", ");
      throw new DsecError("INVALID_NETWORK_RULE", `"${printable(name)}" is neither a service (${known}) nor a domain`);
    }
  }
}

function isRule(name: string): boolean {
  if ((services as readonly string[]).includes(name)) return true;
  const match = domain.exec(name);
  return match !== null && name.length <= 260 && (match[5] === undefined || Number(match[5]) <= 65535);
}

/** What the rules ask and this node cannot give yet. */
export function rulesNotices(allow: Readonly<Record<string, boolean>>, field: string): Notice[] {
  const allowed = Object.keys(allow).filter((name) => allow[name]);
  if (allowed.length === 0) return [];
  return [
    create(NoticeSchema, {
      reason: "ONLY_LOOPBACK",
      field,
      message: `the rules are kept, but sandboxes have only loopback here yet; allowed were: ${allowed.slice(0, 8).join(", ")}`,
    }),
  ];
}
