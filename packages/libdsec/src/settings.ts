// Where the platform is and which key to use: arguments, then the environment, then the file that `dsec up` writes.
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { DsecError } from "@dsec/api";

export interface Settings {
  /** "http://host:port" or "https://…". */
  endpoint: string;
  /** "dsec_…". */
  apiKey: string;
}

/** Path of the file that `dsec up` and `dsec key create --for` write. */
export function configFile(env: NodeJS.ProcessEnv = process.env): string {
  const home =
    env.XDG_CONFIG_HOME && env.XDG_CONFIG_HOME !== "" ? env.XDG_CONFIG_HOME : join(env.HOME || homedir(), ".config");
  return join(home, "dsec", "config.json");
}

/**
 * Reads the settings. `DSEC_ENDPOINT` and `DSEC_API_KEY` win over the file, `given` over both.
 * @throws DsecError NOT_CONFIGURED where nothing names an endpoint or a key; INVALID_ARGUMENT for a damaged file or URL.
 */
export function loadSettings(
  given: { endpoint?: string | undefined; apiKey?: string | undefined } = {},
  env: NodeJS.ProcessEnv = process.env,
): Settings {
  let endpoint = given.endpoint || env.DSEC_ENDPOINT || "";
  let apiKey = given.apiKey || env.DSEC_API_KEY || "";
  if (endpoint === "" || apiKey === "") {
    const file = configFile(env);
    const stored = readConfig(file);
    // A key belongs to its endpoint: one from the file is not sent to an address from elsewhere.
    if (endpoint === "" && apiKey === "") apiKey = stored?.apiKey ?? "";
    else if (apiKey === "" && sameOrigin(endpoint, stored?.endpoint)) apiKey = stored?.apiKey ?? "";
    if (endpoint === "") endpoint = stored?.endpoint ?? "";
    if (endpoint === "") {
      throw new DsecError("NOT_CONFIGURED", `no endpoint: DSEC_ENDPOINT is not set and ${file} does not name one`);
    }
    if (apiKey === "")
      throw new DsecError(
        "NOT_CONFIGURED",
        `no key for ${endpoint}: DSEC_API_KEY is not set and ${file} holds none for it`,
      );
  }
  const url = URL.parse(endpoint);
  if (!url || (url.protocol !== "http:" && url.protocol !== "https:")) {
    throw new DsecError(
      "INVALID_ARGUMENT",
      `the endpoint ${JSON.stringify(endpoint)} is not an http:// or https:// URL`,
    );
  }
  if (!/^[\x21-\x7e]+$/.test(apiKey))
    throw new DsecError("INVALID_ARGUMENT", "the API key holds characters that no key has");
  return { endpoint: url.origin, apiKey };
}

function sameOrigin(a: string, b: string | undefined): boolean {
  return b !== undefined && URL.parse(a)?.origin === URL.parse(b)?.origin;
}

function readConfig(file: string): Partial<Settings> | undefined {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw new DsecError("NOT_CONFIGURED", `${file} cannot be read: ${(error as Error).message}`, { cause: error });
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = undefined;
  }
  if (typeof value !== "object" || value === null)
    throw new DsecError("INVALID_ARGUMENT", `${file} is not a JSON object`);
  const { endpoint, apiKey } = value as Record<string, unknown>;
  return { ...(typeof endpoint === "string" && { endpoint }), ...(typeof apiKey === "string" && { apiKey }) };
}
