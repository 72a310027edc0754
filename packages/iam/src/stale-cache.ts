import { DsecError } from "@dsec/api";

interface Entry<T> {
  value: T;
  at: number;
}

const maxEntries = 20_000;

/** Values from the database: fresh for `freshMs`, and for ten minutes where it is away. One query for many waiters. */
export class StaleCache<T> {
  readonly #entries = new Map<string, Entry<T>>();
  readonly #pending = new Map<string, Promise<T>>();
  readonly #freshMs: number;
  readonly #staleMs: number;
  readonly #now: () => number;

  constructor(freshMs: number, staleMs = 600_000, now: () => number = Date.now) {
    this.#freshMs = freshMs;
    this.#staleMs = staleMs;
    this.#now = now;
  }

  /** Rejects with what `load` threw; failures are not kept. */
  async get(key: string, load: () => Promise<T>): Promise<T> {
    const entry = this.#entries.get(key);
    if (entry !== undefined && this.#now() - entry.at < this.#freshMs) return entry.value;
    const running = this.#pending.get(key);
    if (running !== undefined) return running;
    const loading = this.#load(key, load).finally(() => this.#pending.delete(key));
    this.#pending.set(key, loading);
    return loading;
  }

  delete(key: string): void {
    this.#entries.delete(key);
  }

  clear(): void {
    this.#entries.clear();
  }

  async #load(key: string, load: () => Promise<T>): Promise<T> {
    try {
      const value = await load();
      if (this.#entries.size >= maxEntries) this.#entries.clear();
      this.#entries.set(key, { value, at: this.#now() });
      return value;
    } catch (error) {
      const entry = this.#entries.get(key);
      const away = error instanceof DsecError && error.reason === "DATABASE_UNAVAILABLE";
      if (away && entry !== undefined && this.#now() - entry.at < this.#staleMs) return entry.value;
      this.#entries.delete(key);
      throw error;
    }
  }
}
