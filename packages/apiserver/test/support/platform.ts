import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { join } from "node:path";
import { exportJWK, generateKeyPair, type JWK } from "jose";
import { pino } from "pino";
import { type Apiserver, startApiserver } from "../../src/apiserver.ts";
import { parseSettings } from "../../src/settings.ts";
import { FakeEdge } from "./fake-edge.ts";

export interface Platform extends AsyncDisposable {
  readonly dir: string;
  readonly edges: FakeEdge[];
  readonly apiservers: Apiserver[];
  readonly apiserver: Apiserver;
  readonly port: number;
  readonly key: string;
  readonly publicKey: JWK;
}

export interface PlatformOptions {
  readonly edges?: readonly string[];
  readonly database?: { url: string } | { pgliteDir: string };
  readonly apiservers?: number;
  readonly pollMs?: number;
  /** Before the apiserver starts. */
  readonly prepare?: (edges: FakeEdge[]) => void;
}

/** Apiservers on fake edges, in a directory of its own. */
export async function startPlatform(options: PlatformOptions = {}): Promise<Platform> {
  const dir = mkdtempSync("/run/dsec-test-");
  const pair = await generateKeyPair("EdDSA", { extractable: true });
  const publicKey = await exportJWK(pair.publicKey);
  writeFileSync(join(dir, "private.jwk"), JSON.stringify(await exportJWK(pair.privateKey)), { mode: 0o600 });
  const edges = (options.edges ?? ["ea"]).map((name) => new FakeEdge(name, join(dir, `${name}.sock`), publicKey));
  options.prepare?.(edges);
  await Promise.all(edges.map((edge) => edge.start()));
  const settings = parseSettings({
    port: 0,
    edges: edges.map(({ edge, socket }) => ({ edge, socket })),
    database: options.database ?? { pgliteDir: "memory://" },
    principalPrivateKeyFile: join(dir, "private.jwk"),
    firstKeyFile: join(dir, "first-key"),
    pollMs: options.pollMs ?? 50,
  });
  const log = pino({ level: process.env.DSEC_TEST_LOG ?? "silent" });
  const apiservers = await Promise.all(
    Array.from({ length: options.apiservers ?? 1 }, () => startApiserver(settings, log)),
  );
  const apiserver = apiservers[0] as Apiserver;
  return {
    dir,
    edges,
    apiservers,
    apiserver,
    port: apiserver.port,
    key: readFileSync(join(dir, "first-key"), "utf8").trim(),
    publicKey,
    async [Symbol.asyncDispose]() {
      await Promise.all(edges.map((edge) => edge.stop()));
      await Promise.all(apiservers.map((server) => server.stop()));
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  // biome-ignore lint/suspicious/noExplicitAny: answers are looked at field by field
  readonly json: any;
}

export interface Sent {
  readonly method?: string;
  readonly key?: string | undefined;
  readonly headers?: Record<string, string>;
  readonly body?: string | Buffer;
}

/** One HTTP exchange on a connection of its own. */
export function send(port: number, path: string, sent: Sent = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const headers: Record<string, string> = { ...sent.headers };
    if (sent.key !== undefined) headers.authorization = `Bearer ${sent.key}`;
    const request = httpRequest(
      { host: "127.0.0.1", port, path, method: sent.method ?? "POST", headers, agent: false },
      (answer) => {
        const chunks: Buffer[] = [];
        answer.on("data", (chunk: Buffer) => chunks.push(chunk));
        answer.on("error", reject);
        answer.on("end", () => {
          const body = Buffer.concat(chunks);
          let json: unknown;
          try {
            json = JSON.parse(body.toString("utf8"));
          } catch {}
          resolve({ status: answer.statusCode ?? 0, headers: answer.headers, body, json });
        });
      },
    );
    request.on("error", reject);
    request.end(sent.body);
  });
}

/** A unary call in JSON: `send` with the right path and type. */
export function rpc(port: number, key: string | undefined, method: string, message: unknown = {}): Promise<Answer> {
  const body = JSON.stringify(message);
  return send(port, `/dsec.v1.${method}`, { key, headers: { "content-type": "application/json" }, body });
}

/** The reason in an error's detail. */
export function reasonOf(answer: Answer): string {
  return infoOf(answer)?.reason ?? `status ${answer.status}`;
}

// biome-ignore lint/suspicious/noExplicitAny: a detail's debug form
export function infoOf(answer: Answer): any {
  return answer.json?.details?.[0]?.debug ?? answer.json?.error?.details?.[0]?.debug;
}

export async function importBase(platform: Platform, name = "debian"): Promise<void> {
  const answer = await send(platform.port, `/v1/layers?kind=base&name=${name}&format=tar`, {
    key: platform.key,
    body: "tar",
  });
  if (answer.status !== 200) throw new Error(`import: ${answer.body}`);
}
