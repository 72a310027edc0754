// An aether that lies: the edge ends its sandbox and believes nothing more of it.
import { afterEach, beforeEach, expect, test } from "vitest";
import { errorOf } from "./support/client.ts";
import { FakeEdge, until } from "./support/fake-edge.ts";
import type { AetherHandler, Peer } from "./support/fake-node.ts";

let fake: FakeEdge;
beforeEach(async () => {
  fake = await FakeEdge.start();
});
afterEach(() => fake.stop());

/** What the liar sends in answer to a started command. */
const lies: Record<string, (peer: Peer, id: number) => void> = {
  "a length of 4 GiB": (peer) => peer.socket.write(Buffer.from([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0])),
  "a length just above the bound": (peer) => {
    const header = Buffer.alloc(8);
    header.writeUInt32BE(1024 * 1024 + 65);
    peer.socket.write(header);
  },
  "reserved bytes": (peer) => peer.socket.write(Buffer.from([0, 0, 0, 0, 0, 1, 0, 0])),
  "an unknown kind": (peer) => peer.socket.write(Buffer.from([0, 0, 0, 0, 3, 0, 0, 0])),
  "a message that is none": (peer) => peer.socket.write(Buffer.from([0, 0, 0, 2, 0, 0, 0, 0, 0xff, 0xff])),
  "an answer to another call": (peer) => peer.aether(77, { case: "ended", value: { exitCode: 0 } }),
  "an answer of another kind": (peer, id) => peer.aether(id, { case: "hello", value: {} }),
  "output too short": (peer) => peer.socket.write(Buffer.from([0, 0, 0, 1, 1, 0, 0, 0, 0])),
  "output that jumps": (peer) => {
    peer.output(1, 0, 0, Buffer.from("a"));
    peer.output(1, 100, 5, Buffer.from("b"));
  },
  "output that goes back": (peer) => {
    peer.output(1, 10, 10, Buffer.from("a"));
    peer.output(1, 5, 0, Buffer.from("b"));
  },
  "an end inside a frame": (peer) => peer.socket.end(Buffer.from([0, 0, 0, 9, 1, 0, 0, 0, 1])),
};

for (const [name, lie] of Object.entries(lies)) {
  test(`${name} ends the sandbox as lost`, async () => {
    const { sandboxId } = await fake.create();
    const other = (await fake.create()).sandboxId;
    const handler: AetherHandler = (peer, request, aether) => {
      if (request.call.case !== "start" || aether.id !== sandboxId) return false;
      lie(peer, request.id);
      return true;
    };
    fake.node.handler = handler;
    const spec = { what: { case: "shell" as const, value: "x" } };
    const error = await errorOf(fake.client.commands.exec({ sandboxId, spec }));
    expect([error.reason, error.metadata.end_reason]).toEqual(["SANDBOX_LOST", "LOST"]);
    await until(() => fake.node.stopped.includes(sandboxId), "hostd's clean-up");
    expect((await fake.client.commands.exec({ sandboxId: other, spec })).result?.outcome?.exitCode).toBe(0);
  });
}

test("a supervisor that says it is another sandbox never becomes ready", async () => {
  fake.node.handler = (peer, request) => {
    if (request.call.case !== "hello") return false;
    peer.aether(request.id, { case: "hello", value: { version: 1, sandboxId: "e1aaaaaaaaaaaaaaaaaaaa" } });
    return true;
  };
  expect((await errorOf(fake.create())).reason).toBe("WRONG_SANDBOX");
  expect(fake.edge.core.registry.byId.size).toBe(0);
});

test("an error's text is made printable and its reason must be known", async () => {
  const { sandboxId } = await fake.create();
  fake.node.handler = (peer, request) => {
    if (request.call.case !== "stat") return false;
    peer.aether(request.id, { case: "error", value: { reason: "MADE_UP", message: "\u001b[31mred\n\u0000" } });
    return true;
  };
  const error = await errorOf(fake.client.files.stat({ sandboxId, path: Buffer.from("/x") }));
  expect(error.reason).toBe("INTERNAL");
  expect(error.message).toBe("\\u001b[31mred\\n\\u0000");
});
