// Gives memory back once a burst is over: V8 leaves garbage where it is while nothing asks for room.

const lookMs = 2_000;
/** Share of one CPU, used between two looks, below which the process has nothing better to do. */
const idleShare = 0.05;
/** Bytes that must have come since the last collection, or it is not worth its pause. */
const worthwhileBytes = 4 * 1024 * 1024;

/** Looks every 2 s, for the life of the process; nothing happens where Node runs without --expose-gc. */
export function collectWhenIdle(): void {
  const collect = globalThis.gc;
  if (!collect) return;
  let cpu = process.cpuUsage();
  let kept = 0;
  const timer = setInterval(() => {
    const used = process.cpuUsage(cpu);
    cpu = process.cpuUsage();
    const busy = (used.user + used.system) / 1000 / lookMs > idleShare;
    if (busy || inUse() - kept < worthwhileBytes) return;
    collect({ type: "major", execution: "sync", flavor: "last-resort" });
    kept = inUse();
  }, lookMs);
  timer.unref();
}

/** As the kernel counts it: room that V8 keeps for young objects is free for itself, but not for others. */
function inUse(): number {
  return process.memoryUsage.rss();
}
