// POST /v1/layers: an archive comes in as a body, the node's layers go out as JSON of a LayerVersion without a name.
import type { IncomingMessage, ServerResponse } from "node:http";
import { create, toJson } from "@bufbuild/protobuf";
import { DsecError, ImageConfigSchema, LayerKind, LayerVersionSchema, printable } from "@dsec/api";
import { isImportFormat, type LayerStore } from "../layers/index.ts";
import { split } from "./bodies.ts";
import { sendJson } from "./errors.ts";

const kinds = { base: LayerKind.BASE, workspace: LayerKind.WORKSPACE, toolkit: LayerKind.TOOLKIT } as const;

export class NodeLayers {
  private readonly store: LayerStore;
  /** Layers seen on the disk: they go only through remove(). */
  private readonly seen = new Set<string>();

  constructor(store: LayerStore) {
    this.store = store;
  }

  async has(digest: string): Promise<boolean> {
    if (this.seen.has(digest)) return true;
    if (!(await this.store.has(digest))) return false;
    this.seen.add(digest);
    return true;
  }

  async remove(digest: string): Promise<void> {
    this.seen.delete(digest);
    await this.store.remove(digest);
  }

  /** Takes the archive in and answers; throws what sendError() answers. */
  async handleImport(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const query = new URLSearchParams(split(req.url ?? "")[1]);
    const kind = query.get("kind") ?? "";
    const format = query.get("format") ?? "";
    if (!isKind(kind)) throw invalid("kind", kind, Object.keys(kinds).join(", "));
    if (!isImportFormat(format)) throw invalid("format", format, "tar, oci-archive, docker-archive");
    const leave = new AbortController();
    const left = () => leave.abort();
    res.once("close", left);
    try {
      const made = await this.store.import({ format, kind, body: req, signal: leave.signal });
      const layer = create(LayerVersionSchema, {
        kind: kinds[kind],
        digests: [...made.digests],
        metadataBytes: BigInt(made.metadataBytes),
        dataBytes: BigInt(made.dataBytes),
        entries: BigInt(made.entries),
        createdAtMs: BigInt(Date.now()),
        config: create(ImageConfigSchema, {
          ...made.config,
          env: [...made.config.env, ...query.getAll("env")],
          user: query.get("user") || made.config.user,
          workingDir: query.get("working_dir") || made.config.workingDir,
        }),
        builtFrom: query.get("built_from") ?? "",
      });
      for (const digest of made.digests) this.seen.add(digest);
      sendJson(res, toJson(LayerVersionSchema, layer));
    } finally {
      res.off("close", left);
    }
  }
}

function isKind(text: string): text is keyof typeof kinds {
  return Object.hasOwn(kinds, text);
}

function invalid(name: string, value: string, known: string): DsecError {
  return new DsecError("INVALID_ARGUMENT", `${name} is "${printable(value)}"; known are: ${known}`);
}
