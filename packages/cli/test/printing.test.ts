// What commands print, against a server that says hostile things.
import { DsecError, IamService, LayerService, SandboxService, type SandboxState } from "@dsec/api";
import { expect, test } from "vitest";
import { TestServer } from "../../libdsec/test/support/server.ts";
import { dsec } from "./support/dsec.ts";

const id = `e1${"b".repeat(20)}`;
const hostile = "x\x1b[2J\ny";

async function server() {
  const stopped: string[] = [];
  const made = await TestServer.start((router) =>
    router
      .service(SandboxService, {
        listSandboxes: ({ pageToken, labels }) =>
          pageToken === ""
            ? {
                sandboxes: [{ sandboxId: id, state: 2, project: "p", labels: { l: hostile, ...labels } }],
                nextPageToken: "2",
              }
            : {
                // A state that this version does not know.
                sandboxes: [{ sandboxId: `e2${"c".repeat(20)}`, state: 99 as SandboxState }],
                unreachableEdges: labels["away"] ? ["e3"] : [],
              },
        stopSandbox: ({ sandboxId }) => {
          stopped.push(sandboxId);
          return { sandbox: { sandboxId, state: 7 } };
        },
        getUsage: () => ({ usage: { cpuSeconds: 1.5, memoryBytes: 3n << 20n } }),
        getSandbox: () => {
          throw new DsecError("SANDBOX_ENDED", `ended: ${hostile}`, { metadata: { end_reason: "IDLE" } }).toConnect();
        },
      })
      .service(LayerService, {
        listLayers: () => ({ layers: [{ name: "p/debian", version: 3, kind: 1, digests: ["d"] }] }),
      })
      .service(IamService, {
        createKey: ({ name }) => ({ key: { keyId: "k1", role: 2, name }, secret: "dsec_k1_secret" }),
        listProjects: () => ({ projects: [{ path: "p", quota: { sandboxes: 50 }, used: { sandboxes: 3 } }] }),
      }),
  );
  return { made, stopped, env: { DSEC_ENDPOINT: made.endpoint, DSEC_API_KEY: "k" } };
}

test("a list in a pipe is bare rows, and nothing in it is obeyed by a terminal", async () => {
  const { made, env } = await server();
  await using _ = made;
  const { stdout, code } = await dsec(["ls"], { env });
  expect(code).toBe(0);
  const rows = stdout.replace(/\n$/, "").split("\n");
  expect(rows.length).toBe(2);
  expect(rows[0]).toContain(`${id}\tRUNNING\t`);
  expect(rows[0]).toContain("l=x\\x1b[2J\\ny");
  expect(rows[1]).toContain("\t99\t");
  expect((await dsec(["ls", "-q"], { env })).stdout).toBe(`${id}\ne2${"c".repeat(20)}\n`);
});

test("--json of a list is an array of objects with a name", async () => {
  const { made, env } = await server();
  await using _ = made;
  for (const args of [["ls"], ["image", "ls"], ["layer", "ls"], ["project", "ls"]]) {
    const list = JSON.parse((await dsec([...args, "--json"], { env })).stdout);
    expect(Array.isArray(list), args.join(" ")).toBe(true);
    expect(list[0].name, args.join(" ")).toEqual(expect.any(String));
  }
  expect(JSON.parse((await dsec(["usage", id, "--json"], { env })).stdout)).toMatchObject({
    name: id,
    cpuSeconds: 1.5,
  });
});

test("edges that do not answer are named, and the code says that the list is not whole", async () => {
  const { made, env } = await server();
  await using _ = made;
  const ran = await dsec(["ls", "--label", "away=1"], { env });
  expect(ran.code).toBe(1);
  expect(ran.stderr).toContain("missing here: e3");
});

test("stop takes IDs or a filter", async () => {
  const { made, env, stopped } = await server();
  await using _ = made;
  expect(await dsec(["stop", id], { env })).toMatchObject({ code: 0, stdout: `${id}\n` });
  expect((await dsec(["stop", "--all"], { env })).code).toBe(0);
  expect(stopped.sort()).toEqual([id, id, `e2${"c".repeat(20)}`]);
  expect((await dsec(["stop", "not-an-id"], { env })).code).toBe(1);
});

test("an error says what and what next, escaped", async () => {
  const { made, env } = await server();
  await using _ = made;
  const { code, stderr } = await dsec(["info", id], { env });
  expect(code).toBe(1);
  expect(stderr).toBe(
    "dsec: ended: x\\x1b[2J\\ny (IDLE)\n  next: Create a new sandbox; extend its life or its idle time if it ended too soon.\n",
  );
});

test("a new key's secret is printed alone", async () => {
  const { made, env } = await server();
  await using _ = made;
  expect((await dsec(["key", "create", "--name", "ci"], { env })).stdout).toBe("dsec_k1_secret\n");
});
