import { generateKeyPairSync } from "node:crypto";
import { chmodSync, chownSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { randomBase32 } from "@dsec/api";
import { checkVersion, type Holder, layoutVersion, lockFile } from "./layout.ts";
import type { User } from "./users.ts";

/**
 * Makes the data directory and what is missing in it. The directory itself, `app` and `settings` stay root's: the
 * servers' user must not be able to put a program there that root then runs.
 */
export function prepareDataDir(dataDir: string, server: User): void {
  checkVersion(dataDir);
  mkdirSync(dataDir, { recursive: true, mode: 0o710 });
  chownSync(dataDir, 0, server.gid);
  chmodSync(dataDir, 0o710);
  for (const name of ["app", "settings"]) ensureDir(join(dataDir, name), 0, server.gid, 0o750);
  ensureDir(join(dataDir, "logs"), 0, 0, 0o700);
  for (const name of ["secrets", "pg", "layers", "staging", "edges", "cache"]) {
    ensureDir(join(dataDir, name), server.uid, server.gid, 0o700);
  }
  const version = join(dataDir, "VERSION");
  if (!existsSync(version)) writeWhole(version, `${layoutVersion}\n`, 0o644);
}

function ensureDir(path: string, uid: number, gid: number, mode: number): void {
  if (existsSync(path)) return;
  mkdirSync(path, { mode });
  chownSync(path, uid, gid);
  chmodSync(path, mode);
}

/** Writes a file beside and renames it: whole or not there. */
export function writeWhole(path: string, text: string, mode: number, owner?: { uid: number; gid: number }): void {
  const temporary = `${path}.tmp-${process.pid}`;
  writeFileSync(temporary, text, { mode });
  chmodSync(temporary, mode);
  if (owner) chownSync(temporary, owner.uid, owner.gid);
  renameSync(temporary, path);
}

/** Names of this platform's edges: made once, kept for ever, never given to another node. */
export function edgeNames(dataDir: string, count: number): string[] {
  const file = join(dataDir, "settings/edges.json");
  const names: string[] = existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as string[]) : [];
  const before = names.length;
  while (names.length < count) names.push(`n${randomBase32(8)}`);
  if (names.length > before) writeWhole(file, `${JSON.stringify(names)}\n`, 0o644);
  return names.slice(0, count);
}

export interface KeyFiles {
  readonly principalPrivateKeyFile: string;
  readonly principalPublicKeyFile: string;
  readonly firstKeyFile: string;
}

/** The key pair with which the apiserver signs who asks (Ed25519, as JWK); made once. */
export function ensureKeys(dataDir: string, server: User): KeyFiles {
  const files = {
    principalPrivateKeyFile: join(dataDir, "secrets/principal.jwk"),
    principalPublicKeyFile: join(dataDir, "settings/principal.pub.jwk"),
    firstKeyFile: join(dataDir, "secrets/first-key"),
  };
  if (!existsSync(files.principalPrivateKeyFile) || !existsSync(files.principalPublicKeyFile)) {
    const pair = generateKeyPairSync("ed25519");
    const extra = { alg: "EdDSA", use: "sig", kid: randomBase32(8) };
    const publicKey = { ...pair.publicKey.export({ format: "jwk" }), ...extra };
    const privateKey = { ...pair.privateKey.export({ format: "jwk" }), ...extra };
    writeWhole(files.principalPublicKeyFile, `${JSON.stringify(publicKey)}\n`, 0o644);
    // Last: its being there says that both are.
    writeWhole(files.principalPrivateKeyFile, `${JSON.stringify(privateKey)}\n`, 0o600, server);
  }
  return files;
}

/** Says in the lock file who holds it. In place: another file would be another lock. */
export function writeHolder(holder: Holder): void {
  writeFileSync(lockFile(holder.dataDir), `${JSON.stringify(holder)}\n`, { mode: 0o600 });
}
