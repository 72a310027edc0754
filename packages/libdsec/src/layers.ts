// The catalogue: bases (also imported images), workspaces and toolkits.
import { createReadStream, statSync } from "node:fs";
import { resolve } from "node:path";
import { fromJson } from "@bufbuild/protobuf";
import {
  DsecError,
  ImportLayerResponseSchema,
  LayerService,
  type LayerKind as WireKind,
  type LayerVersion as WireLayer,
} from "@dsec/api";
import { tarOf } from "./files/tar-write.ts";
import { kindName, kindNumber } from "./names.ts";
import { type BodySource, sendBody } from "./transport/body.ts";
import type { Calls } from "./transport/calls.ts";

export type LayerKind = "base" | "workspace" | "toolkit";

export interface Layer {
  /** "project/name". */
  name: string;
  version: number;
  /** "project/name@v3". */
  fullName: string;
  kind: string;
  /** Lowest first. */
  digests: string[];
  metadataBytes: number;
  dataBytes: number;
  entries: number;
  createdAt: Date;
  builtFrom: string;
  config: {
    env: string[];
    user: string;
    workingDir: string;
    entrypoint: string[];
    cmd: string[];
    labels: Record<string, string>;
  };
}

export interface LayerImport {
  kind: LayerKind;
  /** "name" in the key's project; a new version is made. */
  name: string;
  /** Of what is sent; default "tar" (plain, gzip or zstd). An OCI layout is sent as "oci-archive". */
  format?: "tar" | "oci-archive" | "docker-archive" | undefined;
  /** One of the three. */
  body?: BodySource | undefined;
  /** A file here. */
  path?: string | undefined;
  /** A directory here: its content becomes the layer, or with format "oci-archive" it is an OCI layout. */
  directory?: string | undefined;
  project?: string | undefined;
  /** "NAME=VALUE", for what is no image. */
  env?: readonly string[] | undefined;
  user?: string | undefined;
  workingDir?: string | undefined;
  /** For people: where it came from. */
  builtFrom?: string | undefined;
  signal?: AbortSignal | undefined;
}

export class Layers {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  /** Sends content and enters it under the name. @throws DsecError ARCHIVE_INVALID, ARCHIVE_LIMIT, PERMISSION_DENIED */
  async import(what: LayerImport): Promise<Layer & { existed: boolean }> {
    const query = new URLSearchParams({ kind: what.kind, name: what.name, format: what.format ?? "tar" });
    if (what.project) query.set("project", what.project);
    for (const entry of what.env ?? []) query.append("env", entry);
    if (what.user) query.set("user", what.user);
    if (what.workingDir) query.set("working_dir", what.workingDir);
    if (what.builtFrom) query.set("built_from", what.builtFrom);
    const answer = await sendBody(
      this.#calls,
      { method: "POST", path: `/v1/layers?${query}`, signal: what.signal },
      sourceOf(what),
    );
    const { layer, existed } = fromJson(ImportLayerResponseSchema, JSON.parse(Buffer.from(answer).toString("utf8")), {
      ignoreUnknownFields: true,
    });
    if (!layer) throw new DsecError("INTERNAL", "the answer to an import holds no layer");
    return { ...layerOf(layer), existed };
  }

  /** Layers that the key may use; newest version of a name first. */
  async *list(
    options: { kinds?: readonly LayerKind[]; project?: string; namePrefix?: string } = {},
  ): AsyncGenerator<Layer, void, void> {
    let pageToken = "";
    do {
      const page = await this.#calls.call(LayerService.method.listLayers, {
        project: options.project ?? "",
        kinds: (options.kinds ?? []).map(numberOfKind),
        namePrefix: options.namePrefix ?? "",
        pageToken,
      });
      for (const layer of page.layers) yield layerOf(layer);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** @throws DsecError LAYER_NOT_FOUND */
  async get(name: string): Promise<Layer> {
    const { layer } = await this.#calls.call(LayerService.method.getLayer, { name });
    if (!layer) throw new DsecError("LAYER_NOT_FOUND", `the answer holds no layer ${JSON.stringify(name)}`);
    return layerOf(layer);
  }

  /** @throws DsecError LAYER_IN_USE, saying by what */
  async delete(name: string): Promise<void> {
    await this.#calls.call(LayerService.method.deleteLayer, { name });
  }
}

function sourceOf({ body, path, directory }: LayerImport): BodySource {
  if ([body, path, directory].filter((source) => source !== undefined).length !== 1) {
    throw new DsecError("INVALID_ARGUMENT", "give exactly one of body, path and directory");
  }
  if (body !== undefined) return body;
  const local = resolve((path ?? directory) as string);
  const stats = statSync(local, { throwIfNoEntry: false });
  if (!stats) throw new DsecError("FILE_NOT_FOUND", `${JSON.stringify(local)} is not here`);
  if (directory === undefined) return createReadStream(local, { highWaterMark: 1 << 20 });
  if (!stats.isDirectory()) throw new DsecError("NOT_A_DIRECTORY", `${JSON.stringify(local)} is no directory`);
  return tarOf(local);
}

function numberOfKind(kind: LayerKind): WireKind {
  const value = kindNumber(kind);
  if (value === undefined)
    throw new DsecError("INVALID_ARGUMENT", `${JSON.stringify(kind)} is no kind of layer: base, workspace, toolkit`);
  return value as WireKind;
}

function layerOf(wire: WireLayer): Layer {
  const { env = [], user = "", workingDir = "", entrypoint = [], cmd = [], labels = {} } = wire.config ?? {};
  return {
    name: wire.name,
    version: wire.version,
    fullName: `${wire.name}@v${wire.version}`,
    kind: kindName(wire.kind),
    digests: wire.digests,
    metadataBytes: Number(wire.metadataBytes),
    dataBytes: Number(wire.dataBytes),
    entries: Number(wire.entries),
    createdAt: new Date(Number(wire.createdAtMs)),
    builtFrom: wire.builtFrom,
    config: { env, user, workingDir, entrypoint, cmd, labels: { ...labels } },
  };
}
