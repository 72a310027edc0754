/** Calls work(0), work(1), … with at most `width` under way, until `count` were made or `untilMs` (performance.now) is over. */
export async function inFlight(
  width: number,
  limit: { count?: number; untilMs?: number },
  work: (index: number) => Promise<void>,
): Promise<{ done: number; seconds: number }> {
  const start = performance.now();
  let next = 0;
  let done = 0;
  const more = () =>
    (limit.count === undefined || next < limit.count) &&
    (limit.untilMs === undefined || performance.now() < limit.untilMs);
  const lane = async () => {
    while (more()) {
      await work(next++);
      done++;
    }
  };
  await Promise.all(Array.from({ length: width }, lane));
  return { done, seconds: (performance.now() - start) / 1000 };
}

/** A generator of numbers in [0, 1) from a seed (mulberry32), so that a bench can be run again as it was. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
