// The sandboxes of this edge, looked up by ID on behalf of a caller.
import { DsecError, type ListSandboxesRequest, printable } from "@dsec/api";
import { isAtOrBelow, type Principal } from "../auth/principal.ts";
import { maximums } from "../defaults.ts";
import type { Sandbox } from "./sandbox.ts";
import { endedError, type Tombstone, type Tombstones } from "./tombstones.ts";

export class Registry {
  readonly byId = new Map<string, Sandbox>();
  /** Counts every change, for placement. */
  generation = 0;
  private readonly tombstones: Tombstones;

  constructor(tombstones: Tombstones) {
    this.tombstones = tombstones;
  }

  add(sandbox: Sandbox): void {
    this.byId.set(sandbox.id, sandbox);
    this.generation++;
  }

  remove(id: string): void {
    this.byId.delete(id);
    this.generation++;
  }

  /** The sandbox, or what is left of it; another project's is as unknown as none at all. */
  find(id: string, principal: Principal): Sandbox | Tombstone {
    const found = this.byId.get(id) ?? this.tombstones.get(id);
    const project = found && ("record" in found ? found.record.project : found.project);
    if (!found || project === undefined || !isAtOrBelow(project, principal.project)) {
      throw new DsecError("SANDBOX_NOT_FOUND", `no sandbox "${printable(id)}" in the project ${principal.project}`);
    }
    return found;
  }

  /** The sandbox; throws SANDBOX_NOT_FOUND, SANDBOX_ENDED or SANDBOX_LOST. */
  get(id: string, principal: Principal): Sandbox {
    const found = this.find(id, principal);
    if ("record" in found) return found;
    throw endedError(found);
  }

  /** One page, sorted by ID, and the token of the next; the caller sees its project and those below. */
  list(filter: ListSandboxesRequest, principal: Principal): { page: Sandbox[]; next: string } {
    const project = filter.project === "" ? principal.project : filter.project;
    if (!isAtOrBelow(project, principal.project)) {
      throw new DsecError("PROJECT_NOT_FOUND", `no project "${printable(project)}" at or below ${principal.project}`);
    }
    const size = filter.pageSize === 0 ? 100 : filter.pageSize;
    if (size > maximums.pageSize) {
      throw new DsecError("INVALID_ARGUMENT", `page_size is ${size}; at most ${maximums.pageSize} may be`);
    }
    const labels = Object.entries(filter.labels);
    const found: Sandbox[] = [];
    for (const sandbox of this.byId.values()) {
      const { record } = sandbox;
      if (sandbox.id <= filter.pageToken) continue;
      if (filter.recursive || project === "" ? !isAtOrBelow(record.project, project) : record.project !== project)
        continue;
      if (filter.job !== "" && record.job !== filter.job) continue;
      if (filter.states.length > 0 && !filter.states.includes(sandbox.state)) continue;
      if (!labels.every(([name, value]) => Object.hasOwn(record.labels, name) && record.labels[name] === value))
        continue;
      found.push(sandbox);
    }
    found.sort((a, b) => (a.id < b.id ? -1 : 1));
    const page = found.slice(0, size);
    return { page, next: found.length > size ? (page.at(-1)?.id ?? "") : "" };
  }
}
