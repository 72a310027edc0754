// Says by its status whether node_modules holds what package-lock.json asks for: npm-state.ts ROOT all|production.
// Uses Node alone, since it runs before any package is there.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

interface Entry {
  readonly version?: string;
  readonly dev?: boolean;
  readonly devOptional?: boolean;
  readonly optional?: boolean;
  readonly link?: boolean;
}

const [root = ".", wanted = "all"] = process.argv.slice(2);

function packagesOf(file: string): Record<string, Entry> {
  return (JSON.parse(readFileSync(file, "utf8")) as { packages: Record<string, Entry> }).packages;
}

function isWhole(): boolean {
  // npm writes this file last.
  const there = join(root, "node_modules/.package-lock.json");
  if (!existsSync(there)) return false;
  const installed = packagesOf(there);
  return Object.entries(packagesOf(join(root, "package-lock.json"))).every(([path, entry]) => {
    if (!path.includes("node_modules/")) return true;
    if (wanted === "production" && (entry.dev || entry.devOptional)) return true;
    const own = installed[path];
    // An optional one may be for another system.
    if (own === undefined) return entry.optional === true;
    return own.version === entry.version && existsSync(join(root, path));
  });
}

process.exitCode = isWhole() ? 0 : 1;
