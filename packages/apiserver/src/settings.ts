import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import { isEdgeName } from "@dsec/api";
import type { DatabaseSettings } from "@dsec/iam";

export interface EdgeSettings {
  readonly edge: string;
  /** Path of the edge's Unix socket. */
  readonly socket: string;
}

export interface Settings {
  readonly host: string;
  /** 0: any free one. */
  readonly port: number;
  /** Without it only loopback addresses are served. */
  readonly allowNonLoopback: boolean;
  readonly edges: readonly EdgeSettings[];
  readonly database: DatabaseSettings;
  readonly principalPrivateKeyFile: string;
  readonly firstKeyFile: string;
  readonly logLevel: string;
  /** Milliseconds between polls of an edge. */
  readonly pollMs: number;
  /** How many nodes placement draws. */
  readonly placementSample: number;
}

/** Throws an Error that names the field. */
export function readSettings(file: string): Settings {
  return parseSettings(JSON.parse(readFileSync(file, "utf8")));
}

export function parseSettings(json: unknown): Settings {
  if (typeof json !== "object" || json === null) throw new Error("settings: not a JSON object");
  const given = json as Record<string, unknown>;
  const settings: Settings = {
    host: text(given, "host", "127.0.0.1"),
    port: integer(given, "port", 7878, 0, 65_535),
    allowNonLoopback: given.allowNonLoopback === true,
    edges: edges(given.edges),
    database: database(given.database),
    principalPrivateKeyFile: text(given, "principalPrivateKeyFile"),
    firstKeyFile: text(given, "firstKeyFile"),
    logLevel: text(given, "logLevel", "info"),
    pollMs: integer(given, "pollMs", 500, 10, 60_000),
    placementSample: integer(given, "placementSample", 4, 1, 1_000),
  };
  if (!settings.allowNonLoopback && !isLoopback(settings.host)) {
    throw new Error(`settings: host ${settings.host} is not loopback; set allowNonLoopback to serve it`);
  }
  return settings;
}

function isLoopback(host: string): boolean {
  if (host === "localhost" || host === "::1") return true;
  return isIP(host) === 4 && host.startsWith("127.");
}

function text(given: Record<string, unknown>, name: string, fallback?: string): string {
  const value = given[name] ?? fallback;
  if (typeof value !== "string" || value === "") throw new Error(`settings: ${name} is not a text`);
  return value;
}

function integer(given: Record<string, unknown>, name: string, fallback: number, min: number, max: number): number {
  const value = given[name] ?? fallback;
  if (!Number.isInteger(value) || (value as number) < min || (value as number) > max) {
    throw new Error(`settings: ${name} is not a whole number from ${min} to ${max}`);
  }
  return value as number;
}

function edges(value: unknown): EdgeSettings[] {
  if (!Array.isArray(value)) throw new Error("settings: edges is not a list");
  const seen = new Set<string>();
  return value.map((item: Record<string, unknown>) => {
    const edge = text(item, "edge");
    if (!isEdgeName(edge)) throw new Error(`settings: "${edge}" is not an edge's name`);
    if (seen.has(edge)) throw new Error(`settings: the edge "${edge}" is there twice`);
    seen.add(edge);
    return { edge, socket: text(item, "socket") };
  });
}

function database(value: unknown): DatabaseSettings {
  const given = (value ?? {}) as Record<string, unknown>;
  if (typeof given.url === "string") return { url: given.url };
  if (typeof given.pgliteDir === "string") return { pgliteDir: given.pgliteDir };
  throw new Error("settings: database has neither pgliteDir nor url");
}
