// Keeps the first and the last half of what is put in, and counts the middle.
import type { Collected } from "./results.ts";

export class HeadTail {
  readonly #half: number;
  readonly #head: Uint8Array[] = [];
  #headBytes = 0;
  #tail: Uint8Array[] = [];
  #tailBytes = 0;
  #dropped = 0;

  constructor(capBytes: number) {
    this.#half = Math.ceil(capBytes / 2);
  }

  /** @param gap bytes that were lost just before these. */
  push(data: Uint8Array, gap = 0): void {
    if (gap > 0) {
      // What was kept on this side of the gap stays in front of it only as head.
      this.#dropped += gap + this.#tailBytes;
      this.#tail = [];
      this.#tailBytes = 0;
    }
    let rest = data;
    const room = this.#half - this.#headBytes;
    if (room > 0 && this.#dropped === 0) {
      this.#head.push(rest.subarray(0, room));
      this.#headBytes += Math.min(room, rest.length);
      rest = rest.subarray(room);
    }
    if (rest.length === 0) return;
    this.#tail.push(rest);
    this.#tailBytes += rest.length;
    while (this.#tail[0] && this.#tailBytes - this.#tail[0].length >= this.#half) {
      const first = this.#tail.shift() as Uint8Array;
      this.#tailBytes -= first.length;
      this.#dropped += first.length;
    }
  }

  collected(): Collected {
    let droppedBytes = this.#dropped;
    let tail = Buffer.concat(this.#tail, this.#tailBytes);
    if (tail.length > this.#half) {
      droppedBytes += tail.length - this.#half;
      tail = tail.subarray(tail.length - this.#half);
    }
    return { data: Buffer.concat([...this.#head, tail]), droppedBytes, gapAt: this.#headBytes };
  }
}
