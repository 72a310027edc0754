// Paths of projects: "a/b/c". `main` is the root of all projects; `public` holds shared layers and nothing else.
import { DsecError, printable } from "@dsec/api";

export const rootProject = "main";
export const publicProject = "public";

const part = "[a-z0-9][a-z0-9-]{0,38}";
const pattern = new RegExp(`^${part}(?:/${part})*$`);
/** Ten levels of the longest names. */
const maxLength = 400;

/** Throws INVALID_ARGUMENT. */
export function checkProjectPath(path: string): void {
  if (path.length <= maxLength && pattern.test(path)) return;
  throw new DsecError(
    "INVALID_ARGUMENT",
    `"${printable(path)}" is not a project path: parts of [a-z0-9-], at most 39 long, joined by "/"`,
  );
}

export function isAtOrBelow(path: string, root: string): boolean {
  return path === root || (path.length > root.length && path[root.length] === "/" && path.startsWith(root));
}

/** The path and all above it, nearest first. */
export function selfAndAncestors(path: string): string[] {
  const paths = [path];
  for (let end = path.lastIndexOf("/"); end > 0; end = path.lastIndexOf("/", end - 1)) paths.push(path.slice(0, end));
  return paths;
}
