/** `./dsec test --all` runs everything whole; the ordinary suite a short form of the same. */
export const whole = process.env.DSEC_TEST_ALL === "1";
export const scale = (full: number, short: number): number => (whole ? full : short);

/** Printed with a failure, so that a run can be repeated: DSEC_TEST_SEED=N. */
export const seed = Number(process.env.DSEC_TEST_SEED ?? 1 + Math.floor(Math.random() * 1e9));

/** Numbers in [0, 1) from a seed (mulberry32). */
export function seeded(start: number): () => number {
  let state = start >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
