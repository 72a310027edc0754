// The upgrade of GET /v1/sandboxes/{id}/terminal to a WebSocket.
import { type IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer } from "ws";
import { type PrincipalVerifier, requireRole } from "../auth/principal.ts";
import { checkId } from "../commands/check.ts";
import { wholeNumber } from "../commands/output-body.ts";
import { Terminal } from "../commands/terminal.ts";
import type { Core } from "../lifecycle/core.ts";
import { noSuch, split } from "./bodies.ts";
import { sendError } from "./errors.ts";

const place = /^\/v1\/sandboxes\/([^/]+)\/terminal$/;
const largestFrame = 4 * 1024 * 1024;

export class Terminals {
  private readonly core: Core;
  private readonly verifier: PrincipalVerifier;
  private readonly server = new WebSocketServer({ noServer: true, perMessageDeflate: false, maxPayload: largestFrame });

  constructor(core: Core, verifier: PrincipalVerifier) {
    this.core = core;
    this.verifier = verifier;
  }

  /** Upgrades, or answers as any call that failed. */
  async upgrade(req: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    socket.on("error", () => socket.destroy());
    try {
      const [path, search] = split(req.url ?? "");
      const match = place.exec(path);
      if (!match) throw noSuch(req, path);
      const principal = await this.verifier.verify(req.headers["x-dsec-principal"] as string | undefined);
      requireRole(principal, "developer", "a terminal");
      const sandbox = this.core.registry.get(match[1] as string, principal);
      const query = new URLSearchParams(search);
      const commandId = checkId(query.get("command_id") ?? "", "command_id");
      const offset = wholeNumber(query, "stdout_offset");
      // Before the upgrade, so that an unknown command is an ordinary answer.
      await sandbox.running().call({ case: "getCommand", value: { commandId } }, "command");
      this.server.handleUpgrade(req, socket, head, (ws) => {
        try {
          new Terminal(this.core, sandbox, commandId, offset, ws);
        } catch (error) {
          this.core.log.warn({ err: error, sandbox: sandbox.id }, "a terminal could not be attached");
          ws.close(1011);
        }
      });
    } catch (error) {
      const res = new ServerResponse(req);
      res.assignSocket(socket as Socket);
      res.setHeader("connection", "close");
      res.on("finish", () => socket.end());
      sendError(res, error);
    }
  }

  close(): void {
    for (const client of this.server.clients) client.close(1012);
    this.server.close();
  }
}
