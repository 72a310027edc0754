// From what a caller wrote to the digests of layers, as far as the caller may see them.
import { create } from "@bufbuild/protobuf";
import { DsecError, type ImageConfig, printable, type ResolvedLayer, ResolvedLayerSchema } from "@dsec/api";
import { isDigest, type LayerName, parseLayerName } from "./layer-names.ts";
import { digestsOf, type LayerStore, layerFromRow } from "./layers.ts";
import { publicProject, selfAndAncestors } from "./paths.ts";
import { actsIn, type Principal } from "./roles.ts";
import type { LayerRow } from "./schema.ts";
import { StaleCache } from "./stale-cache.ts";

export type KindName = "base" | "workspace" | "toolkit";

export interface ResolvedReference {
  readonly layers: readonly ResolvedLayer[];
  readonly config: ImageConfig | undefined;
}

export class LayerResolver {
  readonly #layers: LayerStore;
  readonly #cache: StaleCache<ResolvedReference>;

  constructor(layers: LayerStore, freshMs = 2_000) {
    this.#layers = layers;
    this.#cache = new StaleCache(freshMs);
  }

  /**
   * @param project where the sandbox will be; bare names are looked up from there
   * Throws LAYER_NOT_FOUND, LAYER_KIND_MISMATCH, INVALID_ARGUMENT, DATABASE_UNAVAILABLE.
   */
  resolve(principal: Principal, project: string, kind: KindName, text: string): Promise<ResolvedReference> {
    const key = `${principal.project}\n${project}\n${kind}\n${text}`;
    return this.#cache.get(key, () => this.#resolve(principal, project, kind, text));
  }

  /** Names changed here: look again. */
  forget(): void {
    this.#cache.clear();
  }

  /** The newest row that the text names, of any kind, and all rows that it names when it says no version. */
  async find(principal: Principal, project: string, text: string): Promise<LayerRow[]> {
    if (isDigest(text)) {
      const rows = await this.#layers.holding(visibleFrom(project), text);
      return rows.filter((row) => digestsOf(row).length === 1);
    }
    const wanted = parseLayerName(text);
    const projects = this.#projects(principal, project, wanted);
    const rows = projects.length === 0 ? [] : await this.#layers.versions(projects, wanted.name);
    for (const nearest of projects) {
      const here = rows.filter((row) => row.project === nearest);
      if (here.length === 0) continue;
      // A bare name means the nearest project that has it, whichever versions are further away.
      return wanted.version === undefined ? here : here.filter((row) => row.version === wanted.version);
    }
    return [];
  }

  #projects(principal: Principal, project: string, wanted: LayerName): string[] {
    if (wanted.project === undefined) return visibleFrom(project);
    const visible = visibleFrom(project).includes(wanted.project) || actsIn(principal, wanted.project);
    return visible ? [wanted.project] : [];
  }

  async #resolve(principal: Principal, project: string, kind: KindName, text: string): Promise<ResolvedReference> {
    const row = (await this.find(principal, project, text))[0];
    if (row === undefined) throw await this.#notFound(project, kind, text);
    if (row.kind !== kind) {
      throw new DsecError(
        "LAYER_KIND_MISMATCH",
        `"${printable(text)}" is a ${row.kind}, and a ${kind} was wanted in its place`,
        { metadata: { layer: `${row.project}/${row.name}@v${row.version}`, kind: row.kind, wanted: kind } },
      );
    }
    const name = `${row.project}/${row.name}@v${row.version}`;
    const layers = digestsOf(row).map((digest) => create(ResolvedLayerSchema, { kind, digest, name }));
    return { layers, config: layerFromRow(row).config };
  }

  async #notFound(project: string, kind: KindName, text: string): Promise<DsecError> {
    const asked = isDigest(text) ? "" : parseLayerName(text).name;
    const names = asked === "" ? [] : await this.#layers.names(visibleFrom(project)).catch(() => []);
    const near = names
      .map((n) => ({ full: `${n.project}/${n.name}`, distance: editDistance(asked, n.name) }))
      .filter((n) => n.distance <= Math.max(2, asked.length / 3))
      .sort((a, b) => a.distance - b.distance || (a.full < b.full ? -1 : 1))
      .slice(0, 3)
      .map((n) => n.full);
    const hint = near.length > 0 ? `; close to it: ${near.join(", ")}` : "";
    return new DsecError(
      "LAYER_NOT_FOUND",
      `there is no ${kind} "${printable(text)}" for ${project} or in public/${hint}`,
      {
        metadata: { layer: printable(text), ...(near.length > 0 ? { close: near.join(",") } : {}) },
      },
    );
  }
}

/** Where a project may look: itself, those above it, then public/. */
export function visibleFrom(project: string): string[] {
  return [...selfAndAncestors(project), publicProject];
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(change, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
