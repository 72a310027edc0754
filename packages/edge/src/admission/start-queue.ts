// At most so many starts at once; the others wait in order until their deadline.
import { DsecError } from "@dsec/api";
import type { Clock } from "../clock.ts";

interface Waiting {
  readonly deadlineMs: number;
  go(): void;
  giveUp(error: Error): void;
}

export class StartQueue {
  private running = 0;
  private readonly limit: number;
  private readonly longest: number;
  private readonly clock: Clock;
  private waiting: Waiting[] = [];
  private timer: NodeJS.Timeout | undefined;

  constructor(limit: number, longest: number, clock: Clock) {
    this.limit = limit;
    this.longest = longest;
    this.clock = clock;
  }

  get length(): number {
    return this.waiting.length;
  }

  /** Runs `start` when it is its turn. CAPACITY_FULL where the queue is full, DEADLINE_EXCEEDED where the time is over. */
  async run<T>(deadlineMs: number, start: () => Promise<T>): Promise<T> {
    if (this.running >= this.limit) await this.turn(deadlineMs);
    else this.running++;
    try {
      return await start();
    } finally {
      this.running--;
      this.next();
    }
  }

  private turn(deadlineMs: number): Promise<void> {
    if (this.waiting.length >= this.longest) {
      throw new DsecError("CAPACITY_FULL", `${this.waiting.length} creates wait for their start`, {
        retryAfterMs: 2000,
      });
    }
    return new Promise((resolve, reject) => {
      this.waiting.push({ deadlineMs, go: resolve, giveUp: reject });
      this.timer ??= setInterval(() => this.dropLate(), 100);
    });
  }

  private next(): void {
    while (this.running < this.limit) {
      const waiting = this.waiting.shift();
      if (!waiting) break;
      if (this.late(waiting)) continue;
      this.running++;
      waiting.go();
    }
    if (this.waiting.length > 0) return;
    clearInterval(this.timer);
    this.timer = undefined;
  }

  private dropLate(): void {
    this.waiting = this.waiting.filter((waiting) => !this.late(waiting));
    this.next();
  }

  private late(waiting: Waiting): boolean {
    if (this.clock.wallMs() < waiting.deadlineMs) return false;
    waiting.giveUp(new DsecError("DEADLINE_EXCEEDED", "the create's deadline passed while it waited for its start"));
    return true;
  }
}
