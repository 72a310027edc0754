// A small server on Connect's own implementation, so that the library's hand-written wire is checked against another one.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { DSecClient } from "../../src/index.ts";

export const sandboxId = `e1${"a".repeat(20)}`;

export class TestServer implements AsyncDisposable {
  readonly requests: { path: string; headers: IncomingMessage["headers"] }[] = [];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #clients: DSecClient[] = [];

  private constructor(server: Server) {
    this.#server = server;
  }

  /** @param plain answers what is no Connect call; gives false to leave it. It may also cut a Connect call by destroying the socket. */
  static async start(
    routes: (router: ConnectRouter) => void,
    plain: (request: IncomingMessage, response: ServerResponse) => boolean = () => false,
    port = 0,
  ): Promise<TestServer> {
    const adapter = connectNodeAdapter({ routes });
    const server = createServer((request, response) => {
      self.requests.push({ path: request.url ?? "", headers: request.headers });
      if (!plain(request, response)) adapter(request, response);
    });
    const self = new TestServer(server);
    server.on("connection", (socket) => {
      self.#sockets.add(socket);
      socket.on("close", () => self.#sockets.delete(socket));
    });
    await new Promise<void>((resolve, reject) => server.once("error", reject).listen(port, "127.0.0.1", resolve));
    return self;
  }

  get http(): Server {
    return this.#server;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  client(requestTimeoutMs = 10_000): DSecClient {
    const client = new DSecClient({ endpoint: this.endpoint, apiKey: "dsec_test_secret", requestTimeoutMs });
    this.#clients.push(client);
    return client;
  }

  /** As a kill -9 of the server: every connection ends at once. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.#clients) client.close();
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
