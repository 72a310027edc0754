// "name", "name@v3", "project/name@v3", "public/name", "sha256:…".
import { DsecError, printable } from "@dsec/api";
import { checkProjectPath } from "./paths.ts";

const namePattern = /^[a-z0-9][a-z0-9._:+-]{0,127}$/;
const digestPattern = /^sha256:[0-9a-f]{64}$/;
const versionPattern = /^v([1-9][0-9]{0,8})$/;

export interface LayerName {
  /** Undefined: a bare name, looked up in the caller's project, those above it, then public/. */
  readonly project: string | undefined;
  readonly name: string;
  /** Undefined: the highest. */
  readonly version: number | undefined;
}

export function isDigest(text: string): boolean {
  return digestPattern.test(text);
}

/** Throws INVALID_ARGUMENT. */
export function checkLayerName(name: string): void {
  if (namePattern.test(name) && !name.startsWith("sha256:")) return;
  throw new DsecError(
    "INVALID_ARGUMENT",
    `"${printable(name)}" is not a layer's name: [a-z0-9] first, then at most 127 of [a-z0-9._:+-]`,
  );
}

/** Throws INVALID_ARGUMENT. */
export function parseLayerName(text: string): LayerName {
  const at = text.indexOf("@");
  const full = at < 0 ? text : text.slice(0, at);
  const slash = full.lastIndexOf("/");
  const name = full.slice(slash + 1);
  checkLayerName(name);
  let project: string | undefined;
  if (slash >= 0) {
    project = full.slice(0, slash);
    checkProjectPath(project);
  }
  if (at < 0) return { project, name, version: undefined };
  const version = versionPattern.exec(text.slice(at + 1))?.[1];
  if (version === undefined) {
    throw new DsecError("INVALID_ARGUMENT", `"${printable(text)}": after "@" comes a version such as v3`);
  }
  return { project, name, version: Number(version) };
}
