// Polls every edge and remembers what it last said. Nothing lasts: a new watcher knows all after one round.
import type { NodeStatus } from "@dsec/api";

export interface WatcherOptions {
  readonly edges: readonly string[];
  /** Asks one edge; rejects when it does not answer. */
  readonly poll: (edge: string, signal: AbortSignal) => Promise<NodeStatus>;
  /** Each answer, with when it was asked for (`now`'s clock). */
  readonly onSnapshot?: (status: NodeStatus, askedAt: number) => void;
  readonly intervalMs?: number;
  /** An answer later than this is a miss. */
  readonly timeoutMs?: number;
  /** Misses in a row after which a node counts as away. */
  readonly maxMisses?: number;
  readonly now?: () => number;
}

export interface NodeView {
  readonly edge: string;
  /** Last good answer; undefined before the first. */
  readonly status: NodeStatus | undefined;
  /** It answered lately. */
  readonly reachable: boolean;
}

interface Watched {
  edge: string;
  status: NodeStatus | undefined;
  misses: number;
  timer: NodeJS.Timeout | undefined;
  running: Promise<void> | undefined;
  /** A poll that will be asked for once the running one is back. */
  next: Promise<void> | undefined;
}

export class Watcher {
  readonly #options: WatcherOptions;
  readonly #watched = new Map<string, Watched>();
  readonly #intervalMs: number;
  readonly #timeoutMs: number;
  readonly #maxMisses: number;
  readonly #now: () => number;
  readonly #stop = new AbortController();

  constructor(options: WatcherOptions) {
    this.#options = options;
    this.#intervalMs = options.intervalMs ?? 500;
    this.#timeoutMs = options.timeoutMs ?? 2_000;
    this.#maxMisses = options.maxMisses ?? 2;
    this.#now = options.now ?? (() => performance.now());
    for (const edge of options.edges) {
      const misses = this.#maxMisses;
      this.#watched.set(edge, {
        edge,
        status: undefined,
        misses,
        timer: undefined,
        running: undefined,
        next: undefined,
      });
    }
  }

  /** Polls until `stop`; resolves after the first round. */
  async start(): Promise<void> {
    await Promise.all([...this.#watched.values()].map((watched) => this.#loop(watched)));
  }

  stop(): void {
    this.#stop.abort();
    for (const watched of this.#watched.values()) clearTimeout(watched.timer);
  }

  nodes(): NodeView[] {
    return [...this.#watched.values()].map(({ edge, status, misses }) => ({
      edge,
      status,
      reachable: misses < this.#maxMisses,
    }));
  }

  /** Polls now: resolves when every edge has answered a question asked after this call, or has missed it. */
  async refresh(): Promise<void> {
    await Promise.all([...this.#watched.values()].map((watched) => this.#pollAfterNow(watched)));
  }

  /** A call to the edge found nobody there: it counts as away until it answers a poll. */
  suspect(edge: string): void {
    const watched = this.#watched.get(edge);
    if (watched !== undefined) watched.misses = Math.max(watched.misses, this.#maxMisses);
  }

  async #loop(watched: Watched): Promise<void> {
    if (this.#stop.signal.aborted) return;
    await this.#poll(watched);
    if (this.#stop.signal.aborted) return;
    watched.timer = setTimeout(() => void this.#loop(watched), this.#intervalMs);
  }

  #pollAfterNow(watched: Watched): Promise<void> {
    if (watched.running === undefined) return this.#poll(watched);
    watched.next ??= watched.running.then(() => {
      watched.next = undefined;
      return this.#poll(watched);
    });
    return watched.next;
  }

  #poll(watched: Watched): Promise<void> {
    watched.running ??= this.#ask(watched).finally(() => {
      watched.running = undefined;
    });
    return watched.running;
  }

  async #ask(watched: Watched): Promise<void> {
    const askedAt = this.#now();
    try {
      const signal = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(this.#timeoutMs)]);
      const status = await this.#options.poll(watched.edge, signal);
      watched.status = status;
      watched.misses = 0;
      this.#options.onSnapshot?.(status, askedAt);
    } catch {
      watched.misses += 1;
    }
  }
}
