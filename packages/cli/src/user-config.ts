// Writes another user's configuration with that user's own rights: no link in their home leads root astray.
import { chmodSync, closeSync, constants, mkdirSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";
import { join } from "node:path";
import { DsecError, printable, randomBase32 } from "@dsec/api";

export interface MachineUser {
  name: string;
  uid: number;
  gid: number;
  home: string;
}

/** @throws DsecError NOT_ROOT, INVALID_USER */
export function lookUp(name: string): MachineUser {
  if (process.geteuid?.() !== 0)
    throw new DsecError("NOT_ROOT", "a key for another user is written with --for by root alone");
  for (const line of readFileSync("/etc/passwd", "utf8").split("\n")) {
    const [user, , uid, gid, , home] = line.split(":");
    if (user === name && home?.startsWith("/")) return { name, uid: Number(uid), gid: Number(gid), home };
  }
  throw new DsecError("INVALID_USER", `there is no user "${printable(name)}" in /etc/passwd`);
}

/** Gives the file's path. */
export function writeConfigAs(user: MachineUser, config: { endpoint: string; apiKey: string }): string {
  const directory = join(user.home, ".config", "dsec");
  const file = join(directory, "config.json");
  const groups = process.getgroups?.() ?? [];
  const mask = process.umask(0o077);
  try {
    if (user.uid !== 0) {
      process.initgroups?.(user.name, user.gid);
      process.setegid?.(user.gid);
      process.seteuid?.(user.uid);
    }
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const part = `${file}.${randomBase32(8)}`;
    const fd = openSync(part, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, 0o600);
    writeSync(fd, `${JSON.stringify(config, null, 2)}\n`);
    closeSync(fd);
    chmodSync(part, 0o600);
    renameSync(part, file);
    return file;
  } finally {
    process.seteuid?.(0);
    process.setegid?.(0);
    process.setgroups?.(groups);
    process.umask(mask);
  }
}
