// Bytes in pieces. Small ones are copied together, so that output written byte by byte costs no object a byte.

const smallPiece = 16 * 1024;
const largestBlock = 64 * 1024;

export class Pieces {
  readonly parts: Uint8Array[] = [];
  bytes = 0;
  /** The block that small pieces are copied to; its used part is the last of `parts`. */
  private block: Buffer | undefined;
  private used = 0;
  private blockSize = 1024;

  add(part: Uint8Array): void {
    if (part.length === 0) return;
    this.bytes += part.length;
    if (part.length >= smallPiece) {
      this.block = undefined;
      this.parts.push(part);
      return;
    }
    if (!this.block || this.used + part.length > this.block.length) this.newBlock(part.length);
    const block = this.block as Buffer;
    block.set(part, this.used);
    this.used += part.length;
    this.parts[this.parts.length - 1] = block.subarray(0, this.used);
  }

  /** @param count at most `bytes` */
  dropFirst(count: number): void {
    let excess = count;
    let whole = 0;
    this.bytes -= count;
    while (excess > 0) {
      const first = this.parts[whole] as Uint8Array;
      if (whole === this.parts.length - 1) this.block = undefined;
      if (first.length > excess) {
        this.parts[whole] = first.subarray(excess);
        break;
      }
      excess -= first.length;
      whole++;
    }
    this.parts.splice(0, whole);
  }

  private newBlock(atLeast: number): void {
    this.block = Buffer.allocUnsafeSlow(Math.max(atLeast, this.blockSize));
    this.blockSize = Math.min(this.blockSize * 4, largestBlock);
    this.used = 0;
    this.parts.push(this.block.subarray(0, 0));
  }
}
