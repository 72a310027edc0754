import { chmodSync, chownSync, existsSync, lstatSync, mkdirSync, rmSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { DsecError } from "@dsec/api";
import { copyApp, dropOldCopies } from "./app-copy.ts";
import { clearUnlessAlive } from "./clearing.ts";
import { edgeNames, ensureKeys, prepareDataDir, writeHolder } from "./data-dir.ts";
import { raisePidMax } from "./ending.ts";
import { HeldLock } from "./held-lock.ts";
import {
  checkVersion,
  defaultPort,
  type Holder,
  host,
  lockFile,
  placesOf,
  readHolder,
  treeRoot,
  type UpOptions,
} from "./layout.ts";
import { commandLine, listenersOn, startTime } from "./processes.ts";
import { reserveRanges } from "./ranges.ts";
import { RotatingLog } from "./rotating-log.ts";
import { programsOf } from "./settings.ts";
import { runningState, type UpState, writeState } from "./state.ts";
import { ensureServerUser, type User } from "./users.ts";
import { Watched } from "./watched.ts";

/** Slots of all edges together, unless asked otherwise. */
const defaultSlots = 3200;
const readyWithinMs = 60_000;

/** Another one holds the data directory; who that is stands in the lock file. */
export class AlreadyUp extends Error {
  readonly holder: Holder | undefined;

  constructor(holder: Holder | undefined) {
    super("already up");
    this.holder = holder;
  }
}

/** The process that starts the servers of one data directory, watches them and ends them. */
export class Supervisor {
  readonly #lock: HeldLock;
  readonly #watched: Watched[] = [];
  readonly #logs: RotatingLog[] = [];
  readonly state: () => UpState;

  private constructor(lock: HeldLock, state: (self: Supervisor) => UpState) {
    this.#lock = lock;
    this.state = () => state(this);
  }

  /**
   * Takes the data directory and starts everything; returns when all servers serve.
   * @throws AlreadyUp, DsecError (NOT_ROOT, DATA_DIR_NEWER, PORT_IN_USE, DATA_DIR_IN_USE, START_FAILED, NODE_UNFIT)
   */
  static async start(options: UpOptions, progress: (line: string) => void): Promise<Supervisor> {
    const places = placesOf(options);
    checkVersion(places.dataDir);
    const made = !existsSync(places.dataDir);
    mkdirSync(places.dataDir, { recursive: true, mode: 0o710 });
    const lock = await HeldLock.take(lockFile(places.dataDir));
    if (!lock) throw new AlreadyUp(readHolder(places.dataDir));
    try {
      return await startLocked(places, options, progress, (state) => new Supervisor(lock, state));
    } catch (error) {
      // What was refused leaves no trace; what cannot be cleared now, `down` clears.
      await clearUnlessAlive(places).catch(() => {});
      if (made && !existsSync(join(places.dataDir, "VERSION")))
        rmSync(places.dataDir, { recursive: true, force: true });
      await lock.release();
      throw error;
    }
  }

  get watched(): readonly Watched[] {
    return this.#watched;
  }

  /** Starts one program and waits until it serves. */
  async run(program: ConstructorParameters<typeof Watched>[0], logDir: string, changed: () => void): Promise<void> {
    const log = new RotatingLog(join(logDir, `${program.name}.log`));
    this.#logs.push(log);
    const watched = new Watched(program, log, changed);
    this.#watched.push(watched);
    if (!(await watched.waitReady(readyWithinMs))) {
      const why = watched.state.lastExit || `not ready after ${readyWithinMs / 1000} s`;
      throw new DsecError(
        "START_FAILED",
        `${program.name} did not start (${why}); its log is ${log.file} and ends:\n${lastLines(watched.tail)}`,
      );
    }
  }

  /** Ends the servers: the apiserver first, hostd last. Sandboxes live on. */
  async stop(): Promise<void> {
    for (const watched of [...this.#watched].reverse()) await watched.stop();
    for (const log of this.#logs) log.close();
    await this.#lock.release();
  }
}

async function startLocked(
  { dataDir, runDir }: { dataDir: string; runDir: string },
  options: UpOptions,
  progress: (line: string) => void,
  make: (state: (self: Supervisor) => UpState) => Supervisor,
): Promise<Supervisor> {
  const other = runningState(runDir);
  if (other && other.dataDir !== dataDir) {
    throw new DsecError("DATA_DIR_IN_USE", `${runDir} is used by the platform on ${other.dataDir} (PID ${other.pid})`);
  }
  const port = options.port ?? defaultPort;
  await refuseBusyPort(port);
  const server = ensureServerUser();
  requireReachable(dataDir, server);
  prepareDataDir(dataDir, server);
  const holder: Holder = {
    pid: process.pid,
    startTime: startTime(process.pid) ?? "",
    dataDir,
    runDir,
    port,
    edges: options.edges ?? 1,
    checkout: process.env["DSEC_ROOT"] ?? treeRoot,
  };
  writeHolder(holder);
  raisePidMax();
  const names = edgeNames(dataDir, holder.edges);
  const ranges = await reserveRanges(
    names,
    options.slots ?? Math.max(64, Math.floor(defaultSlots / names.length)),
    dataDir,
  );
  const app = copyApp(dataDir, progress);
  dropOldCopies(dataDir, app.hash);
  prepareRunDirs(runDir, names, server);
  for (const edge of names) makeShared(join(dataDir, "edges", edge), server);
  const keys = ensureKeys(dataDir, server);
  const databaseUrl = options.databaseUrl ? { databaseUrl: options.databaseUrl } : {};
  const readySlots = options.readySlots === undefined ? {} : { readySlots: options.readySlots };
  const plan = { dataDir, runDir, port, app, server, keys, ranges, ...databaseUrl, ...readySlots };
  const programs = programsOf(plan, isSocket);
  const startedAtMs = Date.now();
  let ready = false;
  const supervisor = make((self) => ({
    pid: holder.pid,
    startTime: holder.startTime,
    ready,
    address: `http://${host}:${port}`,
    dataDir,
    runDir,
    checkout: holder.checkout,
    startedAtMs,
    edges: ranges,
    processes: self.watched.map((watched) => watched.state),
  }));
  const changed = () => writeState(supervisor.state());
  try {
    // The apiserver opens its database meanwhile: it needs no edge to start.
    const groups = [
      ...ranges.map(({ edge }) => programs.filter(({ name }) => name.endsWith(`-${edge}`))),
      programs.slice(-1),
    ];
    progress(`starting ${programs.map(({ name }) => name).join(", ")}`);
    const results = await Promise.allSettled(
      groups.map(async (group) => {
        for (const program of group) await supervisor.run(program, join(dataDir, "logs"), changed);
      }),
    );
    for (const result of results) if (result.status === "rejected") throw result.reason;
  } catch (error) {
    for (const watched of [...supervisor.watched].reverse()) await watched.stop();
    rmSync(join(runDir, "up.json"), { force: true });
    throw error;
  }
  ready = true;
  changed();
  return supervisor;
}

function prepareRunDirs(runDir: string, edges: readonly string[], server: User): void {
  mkdirSync(runDir, { recursive: true, mode: 0o755 });
  // Anybody may make a directory of this name in /dev/shm before us.
  const found = lstatSync(runDir);
  if (!found.isDirectory() || found.uid !== 0) {
    throw new DsecError("NODE_UNFIT", `${runDir} is no directory of root's; remove it, or give another --run-dir`);
  }
  chmodSync(runDir, 0o755);
  for (const edge of edges) {
    const dir = join(runDir, edge);
    makeShared(dir, server);
    // What a server that was killed left: only a living one may say that it is there.
    for (const name of ["hostd.sock", "edge.sock"]) rmSync(join(dir, name), { force: true });
  }
}

/** Sticky and root's: hostd and the edge both make things here, and the edge cannot put one in hostd's place. */
function makeShared(dir: string, server: User): void {
  mkdirSync(dir, { recursive: true });
  chownSync(dir, 0, server.gid);
  chmodSync(dir, 0o1770);
}

/** The servers' user walks to the data directory by its path, so each folder above it must let others through. */
function requireReachable(dataDir: string, server: User): void {
  for (let dir = dirname(dataDir); ; dir = dirname(dir)) {
    const { mode, uid, gid } = statSync(dir);
    const mayEnter = uid === server.uid ? mode & 0o100 : gid === server.gid ? mode & 0o010 : mode & 0o001;
    if (!mayEnter) {
      throw new DsecError(
        "NODE_UNFIT",
        `the servers' user "${server.name}" cannot enter ${dir}: allow it (chmod o+x ${dir}), or give another --data-dir`,
      );
    }
    if (dir === dirname(dir)) return;
  }
}

async function refuseBusyPort(port: number): Promise<void> {
  const problem = await new Promise<NodeJS.ErrnoException | undefined>((resolve) => {
    const probe = createServer();
    probe.once("error", resolve);
    probe.listen({ host, port, exclusive: true }, () => probe.close(() => resolve(undefined)));
  });
  if (!problem) return;
  if (problem.code !== "EADDRINUSE")
    throw new DsecError("INVALID_ARGUMENT", `port ${port} cannot be used: ${problem.message}`);
  const who = listenersOn(port).map((pid) => `PID ${pid} (${commandLine(pid)})`);
  throw new DsecError(
    "PORT_IN_USE",
    `port ${port} is in use by ${who.join(", ") || "a process outside this container"}`,
  );
}

function isSocket(path: string): boolean {
  try {
    return lstatSync(path).isSocket();
  } catch {
    return false;
  }
}

function lastLines(text: string): string {
  return text
    .trimEnd()
    .split("\n")
    .slice(-8)
    .map((line) => `    ${line.slice(0, 300)}`)
    .join("\n");
}
