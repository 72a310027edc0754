import { DsecError, EdgeService, type LayerService, printable } from "@dsec/api";
import {
  actsIn,
  checkActsIn,
  checkProjectPath,
  digestsOf,
  isDigest,
  type LayerResolver,
  type LayerRow,
  type LayerStore,
  layerFromRow,
  type Principal,
  rootProject,
  visibleFrom,
} from "@dsec/iam";
import type { Handlers } from "@dsec/rpc";
import type { Call } from "../call.ts";
import { callEdge } from "../edges/edge-calls.ts";
import type { Edges } from "../edges/edges.ts";

const defaultPage = 100;
const maxPage = 1_000;
const timeoutMs = 10_000;

export interface LayerParts {
  readonly layers: LayerStore;
  readonly resolver: LayerResolver;
  readonly edges: Edges;
  /** Signed as the platform itself, which sees the sandboxes of all projects. */
  readonly platformToken: () => Promise<string> | string;
}

export function layerHandlers(parts: LayerParts): Handlers<typeof LayerService, Call> {
  const { layers, resolver } = parts;
  return {
    async listLayers(request, call) {
      const own = request.project === "" ? call.principal.project : request.project;
      checkProjectPath(own);
      checkActsIn(call.principal, own);
      const limit = request.pageSize === 0 ? defaultPage : Math.min(request.pageSize, maxPage);
      const found = await layers.list({
        projects: visibleFrom(own),
        kinds: request.kinds,
        namePrefix: checkPrefix(request.namePrefix),
        limit: limit + 1,
        after: readToken(request.pageToken),
      });
      const page = found.slice(0, limit);
      const last = page.at(-1);
      return { layers: page, nextPageToken: found.length > limit && last ? `${last.name}@v${last.version}` : "" };
    },

    async getLayer(request, call) {
      const row = (await resolver.find(call.principal, call.principal.project, request.name))[0];
      if (row === undefined) throw notFound(request.name, call.principal);
      return { layer: layerFromRow(row) };
    },

    async deleteLayer(request, call) {
      if (isDigest(request.name)) {
        throw new DsecError("INVALID_ARGUMENT", "a layer is deleted by name: its content goes when no name holds it");
      }
      const rows = await resolver.find(call.principal, call.principal.project, request.name);
      if (rows.length === 0) throw notFound(request.name, call.principal);
      const project = (rows[0] as LayerRow).project;
      if (!actsIn(call.principal, project)) {
        throw new DsecError(
          "PERMISSION_DENIED",
          `"${printable(request.name)}" belongs to ${project}; a key of that project may delete it`,
        );
      }
      await remove(parts, rows, call);
      return {};
    },
  };
}

/** Takes the names out, then the content that no other name holds. Refused while a sandbox uses that content. */
async function remove(parts: LayerParts, rows: LayerRow[], call: Call): Promise<void> {
  const orphans = new Set(await parts.layers.heldOnlyBy(rows));
  const token = await parts.platformToken();
  if (orphans.size > 0) await checkUnused(parts, rows, orphans, token, call);
  // The names first: from here on no create can ask for them. An edge that still refuses gets them back.
  const digests = await parts.layers.remove(rows);
  parts.resolver.forget();
  if (digests.length === 0) return;
  for (const address of parts.edges.all) {
    try {
      await callEdge(
        address,
        EdgeService.method.dropLayer,
        { digests },
        { token, requestId: call.requestId, timeoutMs },
      );
    } catch (error) {
      if (error instanceof DsecError && error.reason === "LAYER_NOT_FOUND") continue;
      await parts.layers.restore(rows);
      throw error;
    }
  }
}

/** Asks all edges: their content may be one directory, so one that drops it drops it for all. */
async function checkUnused(
  parts: LayerParts,
  rows: LayerRow[],
  digests: ReadonlySet<string>,
  token: string,
  call: Call,
) {
  const users: string[] = [];
  await Promise.all(
    parts.edges.all.map(async (address) => {
      for (let pageToken = ""; ; ) {
        const filter = { project: rootProject, recursive: true, pageSize: maxPage, pageToken };
        const options = { token, requestId: call.requestId, timeoutMs };
        const { sandboxes } = await callEdge(address, EdgeService.method.edgeList, { filter }, options);
        for (const sandbox of sandboxes) {
          if (sandbox.layers.some((layer) => digests.has(layer.digest))) users.push(sandbox.sandboxId);
        }
        const last = sandboxes.at(-1);
        if (last === undefined || sandboxes.length < maxPage || last.sandboxId <= pageToken) return;
        pageToken = last.sandboxId;
      }
    }),
  );
  if (users.length === 0) return;
  const first = rows[0] as LayerRow;
  const named = users.sort().slice(0, 10);
  throw new DsecError(
    "LAYER_IN_USE",
    `"${first.project}/${first.name}" is used by ${users.length} sandboxes, such as ${named.slice(0, 3).join(", ")}`,
    {
      metadata: {
        sandboxes: named.join(","),
        count: String(users.length),
        digests: rows.flatMap(digestsOf).slice(0, 10).join(","),
      },
    },
  );
}

function notFound(name: string, principal: Principal): DsecError {
  return new DsecError(
    "LAYER_NOT_FOUND",
    `there is no layer "${printable(name)}" for ${principal.project} or in public/`,
  );
}

function checkPrefix(prefix: string): string {
  if (/^[a-z0-9._:+-]{0,128}$/.test(prefix)) return prefix;
  throw new DsecError("INVALID_ARGUMENT", "name_prefix is not the beginning of a layer's name");
}

function readToken(token: string) {
  if (token === "") return undefined;
  const parts = /^([a-z0-9/-]{1,400})\/([a-z0-9._:+-]{1,128})@v([0-9]{1,9})$/.exec(token);
  if (parts === null) throw new DsecError("INVALID_ARGUMENT", "page_token is not one that a list gave");
  return { project: parts[1] as string, name: parts[2] as string, version: Number(parts[3]) };
}
