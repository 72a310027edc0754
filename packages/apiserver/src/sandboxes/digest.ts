import { hash } from "node:crypto";
import { create, toBinary } from "@bufbuild/protobuf";
import {
  type ContainerArgs,
  ContainerArgsSchema,
  type CreateSandboxRequest,
  CreateSandboxRequestSchema,
} from "@dsec/api";

/**
 * SHA-256 (hex) of what a create asks for: the binary form with maps in order of their keys, without create_key, deadline
 * and retry, which differ between attempts at the same thing.
 */
export function argumentsDigest(request: CreateSandboxRequest, project: string): string {
  const canonical = create(CreateSandboxRequestSchema, {
    project,
    labels: sorted(request.labels),
    job: request.job,
    ttlMs: request.ttlMs,
    idleMs: request.idleMs,
    strict: request.strict,
  });
  if (request.backend.case === "container")
    canonical.backend = { case: "container", value: sortedArgs(request.backend.value) };
  return hash("sha256", toBinary(CreateSandboxRequestSchema, canonical, { writeUnknownFields: false }), "hex");
}

function sortedArgs(args: ContainerArgs): ContainerArgs {
  const copy = create(ContainerArgsSchema, { ...args, env: sorted(args.env), secretEnv: sorted(args.secretEnv) });
  if (args.networkRules !== undefined)
    copy.networkRules = { ...args.networkRules, allow: sorted(args.networkRules.allow) };
  return copy;
}

function sorted<V>(map: { [key: string]: V }): { [key: string]: V } {
  const keys = Object.keys(map);
  if (keys.length < 2) return map;
  return Object.fromEntries(keys.sort().map((key) => [key, map[key] as V]));
}
