// A caller of the edge's socket: Connect calls and plain HTTP.
import http from "node:http";
import { createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { CommandService, DsecError, EdgeService, FileService, SandboxService, SessionService } from "@dsec/api";

export interface Answer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly trailers: NodeJS.Dict<string>;
  readonly body: Buffer;
}

export class EdgeClient {
  readonly sandboxes;
  readonly commands;
  readonly sessions;
  readonly files;
  readonly edge;
  readonly socketPath: string;
  readonly token: string;
  readonly agent: http.Agent;

  constructor(socketPath: string, token: string) {
    this.socketPath = socketPath;
    this.token = token;
    this.agent = new http.Agent({ keepAlive: true, maxSockets: 256 });
    const principal: Interceptor = (next) => (req) => {
      req.header.set("x-dsec-principal", token);
      return next(req);
    };
    const transport = createConnectTransport({
      httpVersion: "1.1",
      baseUrl: "http://edge",
      nodeOptions: { socketPath, agent: this.agent },
      interceptors: [principal],
      acceptCompression: [],
      useBinaryFormat: true,
    });
    this.sandboxes = createClient(SandboxService, transport);
    this.commands = createClient(CommandService, transport);
    this.sessions = createClient(SessionService, transport);
    this.files = createClient(FileService, transport);
    this.edge = createClient(EdgeService, transport);
  }

  http(method: string, path: string, body?: Buffer | string, headers: Record<string, string> = {}): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const req = http.request(
        {
          socketPath: this.socketPath,
          agent: this.agent,
          method,
          path,
          headers: { "x-dsec-principal": this.token, ...headers },
        },
        (res) => {
          const chunks: Buffer[] = [];
          res.on("data", (chunk: Buffer) => chunks.push(chunk));
          res.on("error", reject);
          res.on("end", () =>
            resolve({
              status: res.statusCode ?? 0,
              headers: res.headers,
              trailers: res.trailers,
              body: Buffer.concat(chunks),
            }),
          );
        },
      );
      req.on("error", reject);
      req.end(body);
    });
  }

  close(): void {
    this.agent.destroy();
  }
}

/** The reason of the error that `call` must give. */
export async function reasonOf(call: Promise<unknown>): Promise<string> {
  return (await errorOf(call)).reason;
}

export async function errorOf(call: Promise<unknown>): Promise<DsecError> {
  try {
    await call;
  } catch (error) {
    return DsecError.from(error);
  }
  throw new Error("the call was expected to fail");
}
