import { DsecError, EdgeService, type ListSandboxesRequest, type Sandbox } from "@dsec/api";
import { checkActsIn, checkProjectPath } from "@dsec/iam";
import type { Call } from "../call.ts";
import { callEdge } from "../edges/edge-calls.ts";
import type { Edges } from "../edges/edges.ts";

const defaultPage = 100;
const maxPage = 1_000;
const timeoutMs = 5_000;

export interface ListedSandboxes {
  sandboxes: Sandbox[];
  nextPageToken: string;
  unreachableEdges: string[];
}

/**
 * Asks every edge and merges by ID. A page's token is the last ID of the page before it; an edge gives those after it.
 * Edges that do not answer are named, and what they have is missing.
 */
export async function listSandboxes(edges: Edges, request: ListSandboxesRequest, call: Call): Promise<ListedSandboxes> {
  const project = request.project === "" ? call.principal.project : request.project;
  checkProjectPath(project);
  checkActsIn(call.principal, project);
  const pageSize = request.pageSize === 0 ? defaultPage : Math.min(request.pageSize, maxPage);
  if (request.pageToken !== "" && !/^[a-z0-9]{1,40}$/.test(request.pageToken)) {
    throw new DsecError("INVALID_ARGUMENT", "page_token is not one that a list gave");
  }
  const filter = { ...request, project, pageSize };
  const unreachableEdges: string[] = [];
  let more = false;
  const lists = await Promise.all(
    // IDs begin with the edge's name, but one name may begin another: every edge is asked.
    edges.all.map(async (address) => {
      try {
        const options = { token: call.token, requestId: call.requestId, timeoutMs: Math.min(timeoutMs, call.leftMs) };
        const reply = await callEdge(address, EdgeService.method.edgeList, { filter }, options);
        if (reply.sandboxes.length >= pageSize) more = true;
        return reply.sandboxes.filter((sandbox) => sandbox.sandboxId > request.pageToken);
      } catch (error) {
        if (!(error instanceof DsecError) || !isAway(error)) throw error;
        unreachableEdges.push(address.edge);
        return [];
      }
    }),
  );
  const merged = lists.flat().sort((a, b) => (a.sandboxId < b.sandboxId ? -1 : a.sandboxId > b.sandboxId ? 1 : 0));
  const sandboxes = merged.slice(0, pageSize);
  const last = sandboxes.at(-1);
  const nextPageToken = last !== undefined && (more || merged.length > pageSize) ? last.sandboxId : "";
  return { sandboxes, nextPageToken, unreachableEdges: unreachableEdges.sort() };
}

function isAway(error: DsecError): boolean {
  return ["EDGE_UNREACHABLE", "DEADLINE_EXCEEDED", "UNAVAILABLE"].includes(error.reason);
}
