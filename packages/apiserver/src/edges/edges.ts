import { DsecError, edgeOfSandboxId, printable } from "@dsec/api";
import type { EdgeAddress } from "./edge-calls.ts";

/** The edges that this apiserver knows. A name in an ID is looked up here, never turned into an address. */
export class Edges {
  readonly #byName: ReadonlyMap<string, EdgeAddress>;

  constructor(edges: readonly EdgeAddress[]) {
    this.#byName = new Map(edges.map((edge) => [edge.edge, edge]));
  }

  get all(): EdgeAddress[] {
    return [...this.#byName.values()];
  }

  get(edge: string): EdgeAddress {
    const address = this.#byName.get(edge);
    if (address === undefined) throw new DsecError("EDGE_NOT_FOUND", `there is no edge "${printable(edge)}" here`);
    return address;
  }

  /** Throws SANDBOX_NOT_FOUND for what is no ID, EDGE_NOT_FOUND for one of an edge that is not known here. */
  ofSandbox(sandboxId: string): EdgeAddress {
    const edge = edgeOfSandboxId(sandboxId);
    const address = this.#byName.get(edge);
    if (address === undefined) {
      throw new DsecError("EDGE_NOT_FOUND", `"${printable(sandboxId)}" names an edge that is not known here`);
    }
    return address;
  }
}
