// The environment, user and directory that every command of a sandbox starts with.
import { type ContainerArgs, DsecError, type ImageConfig, printable } from "@dsec/api";
import { defaults, maximums } from "../defaults.ts";

export interface Environment {
  readonly env: Record<string, string>;
  /** Never written to disk, shown or logged. */
  readonly secretEnv: Record<string, string>;
  /** Names of what the caller gave, secrets too, sorted. */
  readonly names: string[];
  readonly user: string;
  /** "" where neither caller nor image says one. */
  readonly workingDir: string;
}

/** The image's, then the caller's above it; PATH and LANG where nothing sets them. */
export function planEnvironment(args: ContainerArgs, config: ImageConfig | undefined): Environment {
  checkVariables(args.env, "container.env");
  checkVariables(args.secretEnv, "container.secret_env");
  const env: Record<string, string> = { PATH: defaults.path };
  for (const entry of config?.env ?? []) {
    const at = entry.indexOf("=");
    if (at > 0) env[entry.slice(0, at)] = entry.slice(at + 1);
  }
  Object.assign(env, args.env);
  if (!("LANG" in env) && !("LC_ALL" in env)) env.LANG = defaults.lang;
  for (const name of Object.keys(args.secretEnv)) delete env[name];
  const workingDir = args.workingDir !== "" ? args.workingDir : (config?.workingDir ?? "");
  if (workingDir !== "" && (!workingDir.startsWith("/") || workingDir.includes("\0") || workingDir.length > 4095)) {
    throw new DsecError(
      "INVALID_PATH",
      `container.working_dir is "${printable(workingDir)}", which is no absolute path`,
    );
  }
  const user = args.initUser || config?.user || defaults.user;
  if (user.includes("\0") || user.length > 256) throw new DsecError("INVALID_USER", `"${printable(user)}" is no user`);
  return {
    env,
    secretEnv: { ...args.secretEnv },
    names: [...new Set([...Object.keys(args.env), ...Object.keys(args.secretEnv)])].sort(),
    user,
    workingDir,
  };
}

/** Names without "=" and NUL, values without NUL, all together within one message to aether. */
export function checkVariables(variables: Record<string, string>, field: string): void {
  let bytes = 0;
  for (const [name, value] of Object.entries(variables)) {
    if (name === "" || name.includes("=") || name.includes("\0")) {
      throw new DsecError("INVALID_ARGUMENT", `${field} has the name "${printable(name)}", which no variable may have`);
    }
    if (value.includes("\0")) {
      throw new DsecError("INVALID_ARGUMENT", `${field}: the value of "${printable(name)}" holds a NUL byte`);
    }
    bytes += Buffer.byteLength(name) + Buffer.byteLength(value) + 2;
  }
  if (bytes > maximums.envBytes) {
    throw new DsecError("TOO_LARGE", `${field} has ${bytes} bytes; at most ${maximums.envBytes} may be`);
  }
}
