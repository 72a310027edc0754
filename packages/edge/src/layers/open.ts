// The store behind POST /v1/layers, in the shape that the edge's server wants.
import type { IncomingMessage, ServerResponse } from "node:http";
import { create, toJsonString } from "@bufbuild/protobuf";
import { DsecError, LayerKind, LayerVersionSchema, printable } from "@dsec/api";
import { isImportFormat, LayerStore, type LayerStoreOptions } from "./store.ts";

const kinds = { base: LayerKind.BASE, workspace: LayerKind.WORKSPACE, toolkit: LayerKind.TOOLKIT } as const;

export interface Layers {
  readonly store: LayerStore;
  /** Takes the body of POST /v1/layers and answers with a LayerVersion without a name; throws a DsecError before that. */
  handleImport(request: IncomingMessage, response: ServerResponse): Promise<void>;
  has(digest: string): boolean;
  remove(digest: string): Promise<void>;
}

export async function openLayers(options: LayerStoreOptions): Promise<Layers> {
  const store = await LayerStore.open(options);
  return {
    store,
    handleImport: (request, response) => handleImport(store, request, response),
    has: (digest) => store.has(digest),
    remove: async (digest) => {
      await store.remove(digest);
    },
  };
}

async function handleImport(store: LayerStore, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const query = new URL(request.url ?? "", "http://localhost").searchParams;
  const kind = query.get("kind") ?? "";
  const format = query.get("format") ?? "";
  if (kind !== "base" && kind !== "workspace" && kind !== "toolkit") {
    throw new DsecError("INVALID_ARGUMENT", `kind is base, workspace or toolkit, not "${printable(kind)}"`);
  }
  if (!isImportFormat(format)) {
    throw new DsecError("INVALID_ARGUMENT", `format is tar, oci-archive or docker-archive, not "${printable(format)}"`);
  }
  const gone = new AbortController();
  response.once("close", () => {
    if (!response.writableEnded) gone.abort();
  });
  const { digests, config, ...made } = await store.import({ format, kind, body: request, signal: gone.signal });
  // What the caller says goes before what the image says.
  config.env = withAdded(config.env, query.getAll("env"));
  config.user = query.get("user") || config.user;
  config.workingDir = query.get("working_dir") || config.workingDir;
  const layer = create(LayerVersionSchema, {
    kind: kinds[kind],
    digests: [...digests],
    metadataBytes: BigInt(made.metadataBytes),
    dataBytes: BigInt(made.dataBytes),
    entries: BigInt(made.entries),
    createdAtMs: BigInt(Date.now()),
    config,
    builtFrom: query.get("built_from") ?? "",
  });
  const body = toJsonString(LayerVersionSchema, layer);
  response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
  response.end(body);
}

/** Variables of `added` take the place of those of the same name. */
function withAdded(env: readonly string[], added: readonly string[]): string[] {
  const nameOf = (entry: string) => entry.split("=", 1)[0];
  const names = new Set(added.map(nameOf));
  return [...env.filter((entry) => !names.has(nameOf(entry))), ...added];
}
