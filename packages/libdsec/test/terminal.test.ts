import { CommandService } from "@dsec/api";
import { expect, test } from "vitest";
import { WebSocketServer } from "ws";
import { sandboxId, TestServer } from "./support/server.ts";

test("a terminal passes bytes and sizes, goes on at its offset after a break, and ends with the command's code", async () => {
  const output = Buffer.from("┌─┐\r\n$ exit 4\r\n");
  const seen: string[] = [];
  await using server = await TestServer.start((router) =>
    router.service(CommandService, {
      start: ({ commandId, spec }) => {
        seen.push(`pty ${spec?.pty?.rows}x${spec?.pty?.cols} ${spec?.stdinOpen}`);
        return { command: { commandId } };
      },
    }),
  );
  const sockets = new WebSocketServer({ noServer: true });
  server.http.on("upgrade", (request, socket, head) => {
    const url = new URL(request.url!, "http://x");
    expect(request.headers.authorization).toBe("Bearer dsec_test_secret");
    const offset = Number(url.searchParams.get("stdout_offset"));
    seen.push(`${url.pathname} ${offset}`);
    sockets.handleUpgrade(request, socket, head, (ws) => {
      ws.on("message", (data: Buffer, binary) => seen.push(`${binary ? "input" : "control"} ${data}`));
      if (offset === 0) {
        ws.send(output.subarray(0, 4));
        setTimeout(() => ws.terminate(), 20);
      } else {
        ws.send(output.subarray(offset));
        ws.send(JSON.stringify({ ended: { exitCode: 4 } }));
        ws.close(1000);
      }
    });
  });
  const terminal = await server.client().sandbox(sandboxId).terminal({ rows: 30, cols: 100 });
  const parts: Buffer[] = [];
  terminal.onData((data) => parts.push(Buffer.from(data)));
  terminal.write("ls\r");
  expect((await terminal.ended).exitCode).toBe(4);
  expect(Buffer.concat(parts).equals(output)).toBe(true);
  const path = `/v1/sandboxes/${sandboxId}/terminal`;
  expect(seen.slice(0, 5)).toEqual([
    "pty 30x100 true",
    `${path} 0`,
    'control {"resize":{"rows":30,"cols":100}}',
    "input ls\r",
    `${path} 4`,
  ]);
});

test("a terminal that is refused gives the server's error", async () => {
  await using server = await TestServer.start((router) =>
    router.service(CommandService, { start: ({ commandId }) => ({ command: { commandId } }) }),
  );
  server.http.on("upgrade", (_, socket) => {
    const body = JSON.stringify({ code: "permission_denied", message: "viewers may not" });
    socket.end(
      `HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
    );
  });
  await expect(server.client().sandbox(sandboxId).terminal()).rejects.toMatchObject({
    reason: "PERMISSION_DENIED",
    message: "viewers may not",
  });
});
