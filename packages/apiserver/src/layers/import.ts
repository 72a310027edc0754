// POST /v1/layers: the body goes to one edge, which makes the layer; what it answers is entered in the catalogue.
import type { IncomingMessage, ServerResponse } from "node:http";
import { request as httpRequest } from "node:http";
import { fromJson, type JsonValue, toJsonString } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { errorFromJsonBytes } from "@connectrpc/connect/protocol-connect";
import { DsecError, ImportLayerResponseSchema, type LayerVersion, LayerVersionSchema } from "@dsec/api";
import {
  checkActsIn,
  checkLayerName,
  checkProjectPath,
  kindFromText,
  type LayerResolver,
  type LayerStore,
} from "@dsec/iam";
import type { Watcher } from "@dsec/watcher";
import type { Call } from "../call.ts";
import { unreachable } from "../edges/edge-calls.ts";
import type { Edges } from "../edges/edges.ts";

const maxAnswerBytes = 4 * 1024 * 1024;
const formats = new Set(["tar", "oci-archive", "docker-archive"]);

export interface ImportParts {
  readonly layers: LayerStore;
  readonly resolver: LayerResolver;
  readonly edges: Edges;
  readonly watcher: Watcher;
}

/** Serves the call. Rejects with what is to be answered as an error. */
export async function importLayer(
  parts: ImportParts,
  request: IncomingMessage,
  response: ServerResponse,
  call: Call,
): Promise<void> {
  if (request.method !== "POST") throw new DsecError("NO_SUCH_METHOD", `/v1/layers takes POST, not ${request.method}`);
  const url = new URL(request.url ?? "", "http://localhost");
  const query = url.searchParams;
  const name = query.get("name") ?? "";
  checkLayerName(name);
  const kind = kindFromText(query.get("kind") ?? "");
  const format = query.get("format") ?? "";
  if (!formats.has(format)) throw new DsecError("INVALID_ARGUMENT", `format is not one of ${[...formats].join(", ")}`);
  const project = query.get("project") || call.principal.project;
  checkProjectPath(project);
  checkActsIn(call.principal, project);
  const made = await send(parts, url, request, call);
  const { layer, existed } = await parts.layers.enter(project, name, {
    kind,
    digests: made.digests,
    metadataBytes: made.metadataBytes,
    dataBytes: made.dataBytes,
    entries: made.entries,
    config: made.config,
    builtFrom: made.builtFrom,
  });
  parts.resolver.forget();
  const body = Buffer.from(
    toJsonString(ImportLayerResponseSchema, { $typeName: "dsec.v1.ImportLayerResponse", layer, existed }),
  );
  response.writeHead(200, {
    "content-type": "application/json",
    "content-length": body.length,
    "x-request-id": call.requestId,
  });
  response.end(body);
}

/** Streams the body to a healthy edge. Rejects with its error, or UNAVAILABLE where none is healthy. */
async function send(parts: ImportParts, url: URL, request: IncomingMessage, call: Call): Promise<LayerVersion> {
  const node = parts.watcher.nodes().find(({ status, reachable }) => reachable && status?.healthy);
  if (node === undefined)
    throw new DsecError("UNAVAILABLE", "no node answers that could take the layer", { retryAfterMs: 1_000 });
  const address = parts.edges.get(node.edge);
  const { status, bytes } = await new Promise<{ status: number; bytes: Buffer }>((resolve, reject) => {
    const headers: Record<string, string> = {
      host: address.edge,
      "content-type": request.headers["content-type"] ?? "application/octet-stream",
      "x-dsec-principal": call.token,
      "x-request-id": call.requestId,
    };
    const length = request.headers["content-length"];
    if (length !== undefined) headers["content-length"] = length;
    else headers["transfer-encoding"] = "chunked";
    const upstream = httpRequest({
      agent: false,
      socketPath: address.socket,
      method: "POST",
      path: url.pathname + url.search,
      headers,
    });
    upstream.on("error", (error) => reject(unreachable(address.edge, error)));
    upstream.on("response", (answer) => {
      const chunks: Buffer[] = [];
      let size = 0;
      answer.on("data", (chunk: Buffer) => {
        size += chunk.length;
        if (size > maxAnswerBytes) upstream.destroy(new Error("the answer is too large"));
        else chunks.push(chunk);
      });
      answer.on("end", () => resolve({ status: answer.statusCode ?? 0, bytes: Buffer.concat(chunks, size) }));
      answer.on("error", (error) => reject(unreachable(address.edge, error)));
    });
    request.on("data", (chunk: Buffer) => {
      if (!upstream.write(chunk)) request.pause();
    });
    upstream.on("drain", () => request.resume());
    request.on("end", () => upstream.end());
    request.on("close", () => {
      if (request.complete) return;
      upstream.destroy();
      reject(new DsecError("CANCELLED", "the request was cut before its end"));
    });
    call.departure.onHappen(() => upstream.destroy());
  });
  if (status === 200)
    return fromJson(LayerVersionSchema, JSON.parse(bytes.toString("utf8")) as JsonValue, { ignoreUnknownFields: true });
  throw DsecError.from(errorOf(status, bytes, address.edge));
}

function errorOf(status: number, bytes: Buffer, edge: string): unknown {
  try {
    return errorFromJsonBytes(
      bytes,
      undefined,
      new ConnectError(`${edge} answered with status ${status}`, Code.Internal),
    );
  } catch (error) {
    return error;
  }
}
