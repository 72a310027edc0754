import { request as httpRequest } from "node:http";
import { expect, test } from "vitest";
import { importBase, rpc, startPlatform } from "./support/platform.ts";

test("a sandbox whose caller left and gave no key is stopped; one with a key stays for the retry", async () => {
  await using platform = await startPlatform();
  await importBase(platform);
  const edge = platform.edges[0]!;
  edge.createMs = 100;
  const leave = (createKey: string) =>
    new Promise<void>((resolve) => {
      const body = JSON.stringify({ container: { image: "debian" }, createKey });
      const headers = { authorization: `Bearer ${platform.key}`, "content-type": "application/json" };
      const path = "/dsec.v1.SandboxService/CreateSandbox";
      const request = httpRequest({ port: platform.port, path, method: "POST", headers, agent: false });
      request.on("error", () => {});
      request.on("close", resolve);
      request.end(body);
      const seen = edge.creates.length;
      const wait = () => (edge.creates.length > seen ? request.destroy() : setTimeout(wait, 5));
      wait();
    });
  await leave("");
  while (edge.made.size > 0 || edge.creates.length === 0) await new Promise((resolve) => setTimeout(resolve, 10));
  await leave("left-behind-1");
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(edge.made.size).toBe(1);
  const message = { container: { image: "debian" }, createKey: "left-behind-1", retry: true };
  const retried = await rpc(platform.port, platform.key, "SandboxService/CreateSandbox", message);
  expect(retried.json.sandbox.sandboxId).toBe([...edge.made.keys()][0]);
});
