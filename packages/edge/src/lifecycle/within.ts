/** Waits at most `ms` for `work`, then throws `late()`; the work itself goes on, and its failure is then nobody's. */
export function within<T>(ms: number, work: Promise<T>, late: () => Error): Promise<T> {
  return new Promise((resolve, reject) => {
    // Timers hold 31 bits; who waits longer asks again.
    const timer = setTimeout(() => reject(late()), Math.min(Math.max(ms, 0), 2 ** 31 - 1));
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
