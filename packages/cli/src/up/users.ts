import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { userInfo } from "node:os";
import { join } from "node:path";
import { DsecError } from "@dsec/api";

export interface User {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  readonly home: string;
}

/** A user by name or number, from /etc/passwd. */
export function findUser(nameOrUid: string | number): User | undefined {
  for (const line of readFileSync("/etc/passwd", "utf8").split("\n")) {
    const [name, , uid, gid, , home] = line.split(":");
    if (name === undefined || uid === undefined || gid === undefined) continue;
    if (name === nameOrUid || Number(uid) === nameOrUid)
      return { name, uid: Number(uid), gid: Number(gid), home: home ?? "/" };
  }
  return undefined;
}

/** The system user that the servers run as; made when it is missing. */
export function ensureServerUser(name = "dsec"): User {
  const there = findUser(name);
  if (there) return there;
  try {
    // useradd is in Debian's `passwd`, which a bare root has; adduser is not there.
    execFileSync(
      "useradd",
      [
        "--system",
        "--user-group",
        "--no-create-home",
        "--home-dir",
        "/nonexistent",
        "--shell",
        "/usr/sbin/nologin",
        name,
      ],
      {
        stdio: ["ignore", "ignore", "pipe"],
      },
    );
  } catch (cause) {
    // Two at once: the other one may have made it.
    if (!findUser(name))
      throw new DsecError("NODE_UNFIT", `the user "${name}" could not be made with useradd`, { cause });
  }
  const made = findUser(name);
  if (!made) throw new DsecError("NODE_UNFIT", `useradd made no user "${name}" in /etc/passwd`);
  return made;
}

/** Who typed the command: the user behind sudo, else the one who runs this. Works without HOME. */
export function invokingUser(): User {
  const behindSudo = process.env["SUDO_USER"];
  if (process.getuid?.() === 0 && behindSudo !== undefined) {
    const user = findUser(behindSudo);
    if (user) return user;
  }
  const me = userInfo();
  return { name: me.username, uid: me.uid, gid: me.gid, home: process.env["HOME"] ?? me.homedir };
}

/** Directory of a user's client configuration. */
export function configDirOf(user: User): string {
  const own = process.env["XDG_CONFIG_HOME"];
  const mine = process.env["SUDO_USER"] === undefined;
  return join(mine && own?.startsWith("/") ? own : join(user.home, ".config"), "dsec");
}

export function requireRoot(what: string): void {
  if (process.getuid?.() !== 0)
    throw new DsecError("NOT_ROOT", `${what} starts processes and makes namespaces as root`);
}
