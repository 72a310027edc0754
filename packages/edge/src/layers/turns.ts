// At most so many at once; the others wait in order.
import { cancelled } from "./builder.ts";

export class Turns {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(most: number) {
    this.#free = most;
  }

  /** Dispose of it to give the turn back. */
  async take(signal?: AbortSignal): Promise<Disposable> {
    if (this.#free > 0) {
      this.#free--;
    } else {
      await new Promise<void>((resolve, reject) => {
        const turn = () => {
          signal?.removeEventListener("abort", stop);
          resolve();
        };
        const stop = () => {
          this.#waiting.splice(this.#waiting.indexOf(turn), 1);
          reject(cancelled());
        };
        this.#waiting.push(turn);
        signal?.addEventListener("abort", stop, { once: true });
      });
    }
    return {
      [Symbol.dispose]: () => {
        const next = this.#waiting.shift();
        if (next) next();
        else this.#free++;
      },
    };
  }
}
