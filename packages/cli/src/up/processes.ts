import { readdirSync, readFileSync, readlinkSync } from "node:fs";

/** Start time of a process in clock ticks since boot, or undefined when it is gone. Pid and start time name it for good. */
export function startTime(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name in brackets may hold anything; the fields after the last bracket are plain.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" || fields[0] === "X" ? undefined : fields[19];
  } catch {
    return undefined;
  }
}

export function isAlive(who: { pid: number; startTime: string }): boolean {
  return startTime(who.pid) === who.startTime;
}

/** All process IDs, oldest directory entry first. */
export function allPids(): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

/** The command line of a process for people, at most 100 characters. */
export function commandLine(pid: number): string {
  try {
    const text = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").filter(Boolean).join(" ");
    const safe = JSON.stringify(text || readFileSync(`/proc/${pid}/comm`, "utf8").trim()).slice(1, -1);
    return safe.length > 100 ? `${safe.slice(0, 99)}…` : safe;
  } catch {
    return "?";
  }
}

/** The real user of a process, or undefined when it is gone. */
export function uidOf(pid: number): number | undefined {
  try {
    return Number(/^Uid:\t(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
  } catch {
    return undefined;
  }
}

/** Who listens on a TCP port of this machine, as far as this user may see. */
export function listenersOn(port: number): number[] {
  const inodes = new Set<string>();
  for (const table of ["/proc/net/tcp", "/proc/net/tcp6"]) {
    for (const line of readTable(table)) {
      const fields = line.trim().split(/\s+/);
      const local = fields[1]?.split(":")[1];
      // 0A: LISTEN.
      if (local !== undefined && Number.parseInt(local, 16) === port && fields[3] === "0A" && fields[9])
        inodes.add(fields[9]);
    }
  }
  if (inodes.size === 0) return [];
  return allPids().filter((pid) => openSockets(pid).some((inode) => inodes.has(inode)));
}

function readTable(file: string): string[] {
  try {
    return readFileSync(file, "utf8").split("\n").slice(1);
  } catch {
    return [];
  }
}

function openSockets(pid: number): string[] {
  const found: string[] = [];
  try {
    for (const fd of readdirSync(`/proc/${pid}/fd`)) {
      try {
        const inode = /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1];
        if (inode !== undefined) found.push(inode);
      } catch {
        // Closed meanwhile.
      }
    }
  } catch {
    // Gone, or another user's.
  }
  return found;
}
