/** Larger answers are put together at their end: a wrong length must not reserve memory. */
const mostReserved = 64 << 20;
/** Up to this size an answer most often comes in one piece. */
const leastReserved = 64 << 10;

/** A whole answer. A long one goes to its place as it comes: joining 16 MiB at the end would hold up everybody else. */
export class AnswerBody {
  readonly #parts: Buffer[] = [];
  readonly #whole: Buffer | undefined;
  #size = 0;

  /** @param contentLength the header, where there is one */
  constructor(contentLength: string | undefined) {
    const length = Number(contentLength ?? 0);
    if (length > leastReserved && length <= mostReserved) this.#whole = Buffer.allocUnsafeSlow(length);
  }

  add(part: Buffer): void {
    if (this.#whole) this.#whole.set(part.subarray(0, this.#whole.length - this.#size), this.#size);
    else this.#parts.push(part);
    this.#size += part.length;
  }

  bytes(): Buffer {
    if (this.#whole) return this.#whole.subarray(0, this.#size);
    return this.#parts.length === 1 ? (this.#parts[0] as Buffer) : Buffer.concat(this.#parts, this.#size);
  }
}
