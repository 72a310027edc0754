import { chownSync, closeSync, constants, existsSync, mkdirSync, openSync, readFileSync, readSync } from "node:fs";
import { dirname, join } from "node:path";
import { DsecError } from "@dsec/api";
import { writeWhole } from "./data-dir.ts";
import { defaultDataDir } from "./layout.ts";
import { configDirOf, invokingUser, type User } from "./users.ts";

/** The first key, which the apiserver wrote; its directory is the servers', so links are not followed. */
export function readFirstKey(dataDir: string): string {
  const file = join(dataDir, "secrets/first-key");
  const fd = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const buffer = Buffer.alloc(4096);
    const key = buffer.subarray(0, readSync(fd, buffer)).toString("utf8").trim();
    if (!/^dsec_[A-Za-z0-9_-]+$/.test(key)) throw new DsecError("START_FAILED", `${file} holds no key`);
    return key;
  } finally {
    closeSync(fd);
  }
}

/**
 * Writes what client programs read, 0600, for the user who typed the command. A platform on a data directory of its own
 * writes it below that directory (unless XDG_CONFIG_HOME is set), so that it does not take the machine's platform's place.
 * @returns the file written
 */
export function writeClientConfig(dataDir: string, address: string): string {
  const user = invokingUser();
  const asked = process.env["XDG_CONFIG_HOME"] !== undefined;
  const dir = dataDir === defaultDataDir || asked ? configDirOf(user) : join(dataDir, "client/dsec");
  makeDirs(dir, user);
  const file = join(dir, "config.json");
  const text = `${JSON.stringify({ endpoint: address, apiKey: readFirstKey(dataDir) }, null, 2)}\n`;
  if (!existsSync(file) || readFileSync(file, "utf8") !== text) writeWhole(file, text, 0o600, user);
  return file;
}

/** Makes a directory and those above it; the new ones belong to the user. */
function makeDirs(dir: string, user: User): void {
  if (existsSync(dir)) return;
  makeDirs(dirname(dir), user);
  mkdirSync(dir, { mode: 0o700 });
  chownSync(dir, user.uid, user.gid);
}
