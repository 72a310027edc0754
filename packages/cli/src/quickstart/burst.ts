import type { ContainerRunArgs, DSecClient, Sandbox } from "@dsec/libdsec";

export interface BurstReport {
  readonly ready: number;
  readonly failed: readonly string[];
  /** Sandboxes whose check came out right. */
  readonly right: number;
  /** Seconds. */
  readonly createSeconds: number;
  readonly workSeconds: number;
  readonly stopSeconds: number;
}

/** Makes `count` sandboxes, all alive together, runs `check` in each, and stops them. */
export async function burst(
  client: DSecClient,
  args: ContainerRunArgs,
  count: number,
  check: (sandbox: Sandbox) => Promise<boolean>,
): Promise<BurstReport> {
  const sandboxes: Sandbox[] = [];
  const failed: string[] = [];
  let right = 0;
  let createSeconds = 0;
  let workSeconds = 0;
  const stopFrom: { at: number } = { at: 0 };
  try {
    createSeconds = await seconds(async () => {
      for await (const result of client.runContainers({ ...args, count })) {
        if (result.sandbox) sandboxes.push(result.sandbox);
        else failed.push(result.error.message);
      }
    });
    workSeconds = await seconds(() =>
      inTurn(sandboxes, 16, async (sandbox) => {
        if (await check(sandbox)) right += 1;
      }),
    );
  } finally {
    stopFrom.at = performance.now();
    await inTurn(sandboxes, 16, async (sandbox) => void (await sandbox.stop()));
  }
  const stopSeconds = (performance.now() - stopFrom.at) / 1000;
  return { ready: sandboxes.length, failed, right, createSeconds, workSeconds, stopSeconds };
}

/** Runs `work` for each, `lanes` at a time. */
async function inTurn<T>(items: readonly T[], lanes: number, work: (item: T) => Promise<void>): Promise<void> {
  const queue = [...items];
  const lane = async () => {
    for (let item = queue.pop(); item !== undefined; item = queue.pop()) await work(item);
  };
  await Promise.all(Array.from({ length: lanes }, lane));
}

export async function seconds(work: () => Promise<unknown>): Promise<number> {
  const from = performance.now();
  await work();
  return (performance.now() - from) / 1000;
}
