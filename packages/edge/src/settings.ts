// The edge's settings: one JSON file, named by --config.
import { readFileSync } from "node:fs";
import { isEdgeName } from "@dsec/api";
import { node } from "./defaults.ts";

export interface Settings {
  readonly edge: string;
  readonly dataDir: string;
  readonly runDir: string;
  readonly principalPublicKeyFile: string;
  readonly mklayer: string;
  readonly overcommitCpu: number;
  readonly overcommitMemory: number;
  readonly maxSandboxes: number;
  readonly startLimit: number;
  readonly logLevel: string;
}

/** Reads and checks the file; throws an Error that names the setting that is wrong. */
export function readSettings(file: string): Settings {
  let json: unknown;
  try {
    json = JSON.parse(readFileSync(file, "utf8"));
  } catch (error) {
    throw new Error(`the settings in ${file} cannot be read: ${(error as Error).message}`);
  }
  return parseSettings(json);
}

export function parseSettings(json: unknown): Settings {
  if (typeof json !== "object" || json === null) throw new Error("the settings are no JSON object");
  const given = json as Record<string, unknown>;
  const text = (name: string): string => {
    const value = given[name];
    if (typeof value !== "string" || value === "") throw new Error(`the setting "${name}" is missing or no text`);
    return value;
  };
  const number = (name: string, otherwise: number): number => {
    const value = given[name] ?? otherwise;
    if (typeof value !== "number" || !(value > 0)) throw new Error(`the setting "${name}" is no number above 0`);
    return value;
  };
  const edge = text("edge");
  if (!isEdgeName(edge)) throw new Error(`the setting "edge" is no name of an edge: ${JSON.stringify(edge)}`);
  return {
    edge,
    dataDir: text("dataDir"),
    runDir: text("runDir"),
    principalPublicKeyFile: text("principalPublicKeyFile"),
    mklayer: text("mklayer"),
    overcommitCpu: number("overcommitCpu", node.overcommitCpu),
    overcommitMemory: number("overcommitMemory", node.overcommitMemory),
    maxSandboxes: Math.floor(number("maxSandboxes", node.maxSandboxes)),
    startLimit: Math.floor(number("startLimit", node.startLimit)),
    logLevel: typeof given.logLevel === "string" ? given.logLevel : "info",
  };
}
