import { create } from "@bufbuild/protobuf";
import { type NodeStatus, NodeStatusSchema } from "@dsec/api";
import { afterEach, expect, test } from "vitest";
import { Watcher, type WatcherOptions } from "../src/watcher.ts";

let watcher: Watcher | undefined;
afterEach(() => watcher?.stop());

const status = (edge: string, sandboxes = 0): NodeStatus =>
  create(NodeStatusSchema, { edge, healthy: true, sandboxes });

function watch(options: Partial<WatcherOptions> & Pick<WatcherOptions, "poll">): Watcher {
  watcher = new Watcher({ edges: ["a", "b"], intervalMs: 3_600_000, ...options });
  return watcher;
}

test("after the first round it knows who answers, and an edge that does not answer holds nobody up", async () => {
  const w = watch({
    timeoutMs: 30,
    poll: (edge, signal) =>
      edge === "a"
        ? Promise.resolve(status("a", 3))
        : new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("late")))),
  });
  expect(w.nodes().map((n) => n.reachable)).toEqual([false, false]);
  await w.start();
  expect(w.nodes()).toMatchObject([
    { edge: "a", reachable: true, status: { sandboxes: 3 } },
    { edge: "b", reachable: false, status: undefined },
  ]);
});

test("one miss is forgiven, two are not; the last good answer stays; an answer mends all", async () => {
  let answers = true;
  const w = watch({ edges: ["a"], poll: async () => (answers ? status("a", 5) : Promise.reject(new Error("no"))) });
  await w.start();
  answers = false;
  await w.refresh();
  expect(w.nodes()[0]).toMatchObject({ reachable: true });
  await w.refresh();
  expect(w.nodes()[0]).toMatchObject({ reachable: false, status: { sandboxes: 5 } });
  answers = true;
  await w.refresh();
  expect(w.nodes()[0]?.reachable).toBe(true);
  w.suspect("a");
  expect(w.nodes()[0]?.reachable).toBe(false);
});

test("a refresh brings an answer to a question asked after it, and many share one question", async () => {
  const questions: { askedAt: number; answer: () => void }[] = [];
  let clock = 0;
  const w = watch({
    edges: ["a"],
    now: () => ++clock,
    poll: () => new Promise((resolve) => questions.push({ askedAt: clock, answer: () => resolve(status("a")) })),
  });
  const started = w.start();
  expect(questions).toHaveLength(1);
  let done = 0;
  const asked = [1, 2, 3].map(() => w.refresh().then(() => done++));
  questions[0]?.answer();
  await started;
  await new Promise(setImmediate);
  // The first answer is older than the refreshes: they wait for the second.
  expect(done).toBe(0);
  expect(questions).toHaveLength(2);
  questions[1]?.answer();
  await Promise.all(asked);
  expect(questions).toHaveLength(2);
});

test("it polls on by itself until it is stopped", async () => {
  let polls = 0;
  const w = watch({ edges: ["a"], intervalMs: 1, poll: async () => status("a", ++polls) });
  await w.start();
  while (polls < 5) await new Promise(setImmediate);
  w.stop();
  await new Promise((resolve) => setTimeout(resolve, 20));
  const after = polls;
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(polls).toBe(after);
});
