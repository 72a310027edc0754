// Creates over a connection that is cut at every step, two apiservers, three edges: never two sandboxes for one key.
import { connect, createServer, type Server, type Socket } from "node:net";
import { type CreateManyResult, DSecClient } from "@dsec/libdsec";
import { afterAll, beforeAll, expect, test } from "vitest";
import { importBase } from "./support/environment.ts";
import { Platform } from "./support/platform.ts";
import { type Postgres, startPostgres } from "./support/postgres.ts";
import { scale, seed, seeded } from "./support/scale.ts";

let postgres: Postgres | undefined;
let platform: Platform;
const rounds = scale(1_000, 60);

beforeAll(async () => {
  postgres = await startPostgres();
  if (!postgres) console.log("skipped: no PostgreSQL is installed, so one apiserver on the embedded database is used");
  const database = postgres ? { databaseUrl: postgres.url, apiservers: 2 } : {};
  platform = await Platform.start({ edges: 3, ...database });
  await importBase(platform.client());
}, 300_000);
afterAll(async () => {
  await platform?.[Symbol.asyncDispose]();
  await postgres?.[Symbol.asyncDispose]();
});

/** A proxy to one of the ports, which cuts some connections after a random number of bytes, either way. */
class Cutter implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  cut = 0;

  constructor(ports: number[], random: () => number) {
    this.#server = createServer((inward) => {
      const port = ports[Math.floor(random() * ports.length)] ?? 0;
      const outward = connect(port, "127.0.0.1");
      const dies = random() < 0.7;
      let left = Math.floor(random() * 2_500);
      for (const [from, to] of [
        [inward, outward],
        [outward, inward],
      ] as const) {
        this.#sockets.add(from);
        from.on("error", () => {});
        from.on("close", () => {
          to.destroy();
          this.#sockets.delete(from);
        });
        from.on("data", (data: Buffer) => {
          if (dies && data.length >= left) {
            this.cut++;
            to.write(data.subarray(0, left), () => to.destroy());
            from.destroy();
            return;
          }
          left -= data.length;
          to.write(data);
        });
      }
    });
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    const address = this.#server.address();
    return `http://127.0.0.1:${typeof address === "object" && address ? address.port : 0}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

test("one key, one sandbox", { timeout: 1_800_000 }, async () => {
  await using cutter = new Cutter(platform.ports, seeded(seed));
  const endpoint = await cutter.listen();
  await using client = new DSecClient({ endpoint, apiKey: platform.apiKey });
  const direct = platform.client();
  let ended = 0;
  for (let from = 0; from < rounds; from += 20) {
    const many = Math.min(20, rounds - from);
    const results: CreateManyResult[] = [];
    for await (const made of client.runContainers({
      count: many,
      concurrency: 8,
      containerImage: "base",
      labels: { round: String(from) },
      timeoutMs: 60_000,
    })) {
      results.push(made);
    }
    expect(results.length, `seed ${seed}`).toBe(many);
    const made = new Set(results.flatMap((result) => (result.sandbox ? [result.sandbox.id] : [])));
    expect(made.size).toBe(results.filter((result) => result.sandbox).length);
    const alive = new Set<string>();
    for await (const info of direct.list({ labels: { round: String(from) } })) {
      if (info.state === "RUNNING" || info.state === "CREATING") alive.add(info.id);
    }
    // A create that was given up with outcome "unknown" may have made one; never more than one a key.
    const unknown = results.filter((result) => result.error?.outcome === "unknown").length;
    for (const id of made) expect(alive).toContain(id);
    expect(alive.size, `seed ${seed}`).toBeLessThanOrEqual(made.size + unknown);
    for (const id of alive) await (await direct.connect(id)).stop();
    ended += alive.size;
  }
  expect(cutter.cut, "the proxy cut nothing").toBeGreaterThan(0);
  expect(ended).toBeGreaterThan(rounds / 2);
});

test("the same key twice at once gives one sandbox; with other arguments it is refused", async () => {
  const clients = platform.ports.map((_, i) => platform.client(i));
  const key = `same${Date.now()}`;
  const args = { containerImage: "base", createKey: key, timeoutMs: 30_000 };
  const both = await Promise.allSettled([0, 1].map((i) => clients[i % clients.length]?.runContainer(args)));
  const ids = new Set(both.flatMap((one) => (one.status === "fulfilled" && one.value ? [one.value.id] : [])));
  expect(ids.size).toBe(1);
  await expect(clients[0]?.runContainer({ ...args, memoryLimitMb: 333 })).rejects.toMatchObject({
    reason: "IDEMPOTENCY_MISMATCH",
  });
  for (const id of ids) await (await platform.client().connect(id)).stop();
});
