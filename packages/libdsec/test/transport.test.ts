import { spawn } from "node:child_process";
import { join } from "node:path";
import { Code, ConnectError } from "@connectrpc/connect";
import { CommandService, DsecError, SandboxService } from "@dsec/api";
import { expect, test } from "vitest";
import { DSecClient, isInfrastructureError, isSandboxGone } from "../src/index.ts";
import { sandboxId, TestServer } from "./support/server.ts";

test("errors keep reason, retryable, outcome and metadata over the wire", async () => {
  await using server = await TestServer.start((router) =>
    router.service(SandboxService, {
      getSandbox: () => {
        throw new DsecError("SANDBOX_ENDED", "it ended", { metadata: { end_reason: "IDLE" } }).toConnect();
      },
    }),
  );
  const error = await server
    .client()
    .connect(sandboxId)
    .catch((thrown) => thrown);
  expect(error).toMatchObject({
    reason: "SANDBOX_ENDED",
    code: Code.NotFound,
    metadata: { end_reason: "IDLE" },
    retryable: false,
  });
  expect(isSandboxGone(error)).toBe(true);
  expect(isInfrastructureError(error)).toBe(true);
});

test("an error without a reason, and one of a proxy, become typed ones", async () => {
  await using server = await TestServer.start(
    (router) =>
      router.service(SandboxService, {
        getSandbox: () => {
          throw new ConnectError("no", Code.PermissionDenied);
        },
      }),
    (request, response) => {
      if (!request.url!.endsWith("GetUsage")) return false;
      response.writeHead(401, { "content-type": "text/html" }).end("<h1>login</h1>");
      return true;
    },
  );
  const client = server.client();
  await expect(client.connect(sandboxId)).rejects.toMatchObject({ reason: "PERMISSION_DENIED" });
  await expect(client.sandbox(sandboxId).usage()).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
});

test("what is no ID is refused here", () => {
  const client = new DSecClient({ endpoint: "http://127.0.0.1:1", apiKey: "k" });
  expect(() => client.sandbox("../../etc")).toThrow(expect.objectContaining({ reason: "SANDBOX_NOT_FOUND" }));
  client.close();
});

test("an address where nothing ever answered fails soon; a server that was there is waited for", async () => {
  const client = new DSecClient({ endpoint: "http://127.0.0.1:1", apiKey: "k" });
  await expect(client.keys.whoAmI()).rejects.toMatchObject({ reason: "UNAVAILABLE", outcome: "" });
  client.close();

  const routes = (router: import("@connectrpc/connect").ConnectRouter) =>
    router.service(CommandService, { exec: () => ({ result: { outcome: { exitCode: 0 } } }) });
  const first = await TestServer.start(routes);
  const other = new DSecClient({ endpoint: first.endpoint, apiKey: "k" });
  const sandbox = other.sandbox(sandboxId);
  await sandbox.exec(["x"]);
  const port = first.port;
  await first[Symbol.asyncDispose]();
  const waiting = sandbox.exec(["x"]);
  await new Promise((resolve) => setTimeout(resolve, 1500));
  await using _second = await TestServer.start(routes, undefined, port);
  expect((await waiting).exitCode).toBe(0);
  other.close();
});

test("a program that used the client ends by itself, also without close", async () => {
  await using server = await TestServer.start((router) =>
    router.service(CommandService, { exec: () => ({ result: { outcome: { exitCode: 0 } } }) }),
  );
  const source = `
    import { DSecClient } from ${JSON.stringify(join(import.meta.dirname, "../src/index.ts"))};
    const client = new DSecClient();
    console.log((await client.sandbox(${JSON.stringify(sandboxId)}).exec(["x"])).exitCode);`;
  const child = spawn(process.execPath, ["--input-type=module-typescript", "-e", source], {
    env: { ...process.env, DSEC_ENDPOINT: server.endpoint, DSEC_API_KEY: "k" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let out = "";
  child.stdout.on("data", (part) => (out += part));
  const code = await new Promise((resolve) => child.on("exit", resolve));
  expect([out, code]).toEqual(["0\n", 0]);
});

test("close ends what is open with CANCELLED", async () => {
  await using server = await TestServer.start((router) =>
    router.service(CommandService, { exec: () => new Promise<never>(() => {}) }),
  );
  const client = server.client();
  const running = client.sandbox(sandboxId).exec(["x"]);
  setTimeout(() => client.close(), 50);
  await expect(running).rejects.toMatchObject({ reason: "CANCELLED" });
  await expect(client.keys.whoAmI()).rejects.toMatchObject({ reason: "CANCELLED" });
});
