// Bytes of output kept for a result: copied, so that the buffers that they came in can be used again at once.

const smallestBlock = 1024;
const largestBlock = 64 * 1024;

/** Grows; nothing is taken away. */
export class Head {
  readonly parts: Uint8Array[] = [];
  bytes = 0;
  /** The block that is filled; its used part is the last of `parts`. */
  private block: Buffer = Buffer.alloc(0);
  private used = 0;
  private blockSize = smallestBlock;

  add(part: Uint8Array): void {
    if (part.length === 0) return;
    this.bytes += part.length;
    if (this.used + part.length > this.block.length) {
      this.block = Buffer.allocUnsafeSlow(Math.max(part.length, this.blockSize));
      this.blockSize = Math.min(this.blockSize * 4, largestBlock);
      this.used = 0;
      this.parts.push(this.block);
    }
    this.block.set(part, this.used);
    this.used += part.length;
    this.parts[this.parts.length - 1] = this.block.subarray(0, this.used);
  }
}

/** The last `cap` bytes, in a ring that grows up to the cap. */
export class Tail {
  bytes = 0;
  private readonly cap: number;
  private ring: Buffer = Buffer.alloc(0);
  private start = 0;

  constructor(cap: number) {
    this.cap = cap;
  }

  /** Returns the number of bytes that were pushed out. */
  add(part: Uint8Array): number {
    const excess = Math.max(0, this.bytes + part.length - this.cap);
    const taken = part.length > this.cap ? part.subarray(part.length - this.cap) : part;
    this.grow(this.bytes + taken.length);
    const gone = Math.min(this.bytes, excess);
    const size = this.ring.length;
    if (size > 0) this.start = (this.start + gone) % size;
    this.bytes -= gone;
    const at = size > 0 ? (this.start + this.bytes) % size : 0;
    const first = taken.subarray(0, size - at);
    this.ring.set(first, at);
    this.ring.set(taken.subarray(first.length), 0);
    this.bytes += taken.length;
    return excess;
  }

  /** What is kept, in order; views of the ring. */
  parts(): Uint8Array[] {
    const end = this.start + this.bytes;
    if (end <= this.ring.length) return this.bytes === 0 ? [] : [this.ring.subarray(this.start, end)];
    return [this.ring.subarray(this.start), this.ring.subarray(0, end - this.ring.length)];
  }

  clear(): void {
    this.bytes = 0;
    this.start = 0;
  }

  private grow(wanted: number): void {
    const size = this.ring.length;
    if (wanted <= size || size === this.cap) return;
    const larger = Buffer.allocUnsafeSlow(Math.min(this.cap, Math.max(wanted, size * 2, smallestBlock)));
    let at = 0;
    for (const part of this.parts()) {
      larger.set(part, at);
      at += part.length;
    }
    this.ring = larger;
    this.start = 0;
  }
}
