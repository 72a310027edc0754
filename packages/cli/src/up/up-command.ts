import { fork } from "node:child_process";
import { closeSync, existsSync, openSync } from "node:fs";
import { join } from "node:path";
import { DsecError } from "@dsec/api";
import { writeClientConfig } from "./client-config.ts";
import { checkVersion, type Holder, placesOf, readHolder, treeRoot, type UpOptions } from "./layout.ts";
import { isAlive } from "./processes.ts";
import { readState, runningState, type UpState } from "./state.ts";
import { AlreadyUp, Supervisor } from "./supervisor.ts";
import { requireRoot } from "./users.ts";

/** What a detached supervisor tells the command that started it. */
export type Message =
  | { progress: string }
  | { ready: true }
  | { failed: { reason: string; message: string } }
  | { already: true };

export interface UpResult {
  readonly state: UpState;
  /** It was up before. */
  readonly attached: boolean;
  readonly configFile: string;
}

/** Starts the platform in the background, or finds the one that is up. */
export async function upDetached(options: UpOptions, progress: (line: string) => void): Promise<UpResult> {
  requireRoot("up");
  const { dataDir } = placesOf(options);
  checkVersion(dataDir);
  const there = livingHolder(dataDir);
  if (there) return await attach(options, there, progress);
  // The supervisor itself writes little, and where depends on whether it may have the data directory at all.
  const logDir = existsSync(join(dataDir, "logs")) ? join(dataDir, "logs") : undefined;
  const log = logDir === undefined ? "ignore" : openSync(join(logDir, "up.log"), "a", 0o600);
  const child = fork(join(import.meta.dirname, "supervisor-main.ts"), [JSON.stringify(options)], {
    detached: true,
    cwd: "/",
    stdio: ["ignore", log, log, "ipc"],
    execArgv: ["--disable-warning=ExperimentalWarning"],
    env: { ...process.env, DSEC_ROOT: process.env["DSEC_ROOT"] ?? treeRoot },
  });
  if (log !== "ignore") closeSync(log);
  const message = await new Promise<Message>((resolve) => {
    child.on("message", (message: Message) => {
      if ("progress" in message) progress(message.progress);
      else resolve(message);
    });
    child.once("exit", (code, signal) =>
      resolve({
        failed: {
          reason: "START_FAILED",
          message: `the supervisor ended (${signal ?? code}); see ${dataDir}/logs/up.log`,
        },
      }),
    );
  });
  child.removeAllListeners();
  if (child.connected) child.disconnect();
  child.unref();
  if ("failed" in message) throw new DsecError(message.failed.reason, message.failed.message);
  if ("already" in message) return await attach(options, readHolder(dataDir), progress);
  return result(options, false);
}

/** Starts the platform and stays until a signal comes; then the servers end and sandboxes live on. */
export async function upForeground(
  options: UpOptions,
  progress: (line: string) => void,
  onReady: (up: UpResult) => void,
): Promise<void> {
  requireRoot("up");
  let signal = "";
  let wake = () => {};
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(name, () => {
      signal = name;
      wake();
    });
  }
  let supervisor: Supervisor;
  try {
    supervisor = await Supervisor.start(options, progress);
  } catch (error) {
    if (!(error instanceof AlreadyUp)) throw error;
    onReady(await attach(options, error.holder, progress));
    return;
  }
  onReady(result(options, false));
  if (!signal) {
    // A server's pipes keep the process alive as long as it runs; the timer does when all of them are down.
    const keep = setInterval(() => {}, 1 << 30);
    await new Promise<void>((resolve) => {
      wake = resolve;
    });
    clearInterval(keep);
  }
  progress("ending the servers");
  await supervisor.stop();
}

function livingHolder(dataDir: string): Holder | undefined {
  const holder = readHolder(dataDir);
  return holder && isAlive(holder) ? holder : undefined;
}

/** The platform that is up already, unless something else was asked of it. */
async function attach(
  options: UpOptions,
  holder: Holder | undefined,
  progress: (line: string) => void,
): Promise<UpResult> {
  const { dataDir } = placesOf(options);
  if (!holder) throw new DsecError("DATA_DIR_IN_USE", `${dataDir} is locked by a process that has not said who it is`);
  const differs = [
    options.port !== undefined && options.port !== holder.port ? `port ${holder.port}` : "",
    options.edges !== undefined && options.edges !== holder.edges ? `${holder.edges} edge(s)` : "",
    options.runDir !== undefined && placesOf(options).runDir !== holder.runDir ? `run directory ${holder.runDir}` : "",
  ].filter(Boolean);
  if (differs.length > 0) {
    throw new DsecError(
      "DATA_DIR_IN_USE",
      `${dataDir} is in use by PID ${holder.pid} from ${holder.checkout}, with ${differs.join(", ")}`,
    );
  }
  let waited = 0;
  while (!runningState(holder.runDir)?.ready) {
    if (!isAlive(holder))
      throw new DsecError(
        "START_FAILED",
        `the platform that was starting (PID ${holder.pid}) ended; see ${dataDir}/logs`,
      );
    if (waited === 0) progress(`PID ${holder.pid} is starting it; waiting`);
    if (waited > 90_000)
      throw new DsecError("START_FAILED", `PID ${holder.pid} has been starting for 90 s; see ${dataDir}/logs`);
    await new Promise((resolve) => setTimeout(resolve, 100));
    waited += 100;
  }
  return result({ ...options, runDir: holder.runDir }, true);
}

function result(options: UpOptions, attached: boolean): UpResult {
  const { dataDir, runDir } = placesOf(options);
  const state = readState(runDir);
  if (!state) throw new DsecError("START_FAILED", `${runDir}/up.json is gone`);
  return { state, attached, configFile: writeClientConfig(dataDir, state.address) };
}
