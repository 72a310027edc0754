// Connections whose command has ended, kept for a moment for the next one: a connect costs more than a call.
import type { AetherConnection } from "./connection.ts";

const most = 8;
const idleMs = 2000;

export class SpareConnections {
  private readonly spares: { connection: AetherConnection; since: number }[] = [];
  private timer: NodeJS.Timeout | undefined;
  private closed = false;

  /** The one used last, greeted and silent; undefined where there is none. */
  take(): AetherConnection | undefined {
    for (let spare = this.spares.pop(); spare; spare = this.spares.pop()) {
      if (!spare.connection.wire.isClosed) return spare.connection;
    }
    return undefined;
  }

  give(connection: AetherConnection): void {
    if (this.closed || this.spares.length >= most || !connection.rest()) {
      connection.close();
      return;
    }
    this.spares.push({ connection, since: performance.now() });
    this.timer ??= setInterval(() => this.dropOld(), idleMs).unref();
  }

  close(): void {
    this.closed = true;
    clearInterval(this.timer);
    for (const { connection } of this.spares.splice(0)) connection.close();
  }

  private dropOld(): void {
    const old = performance.now() - idleMs;
    while (this.spares[0] && this.spares[0].since < old) this.spares.shift()?.connection.close();
    if (this.spares.length > 0) return;
    clearInterval(this.timer);
    this.timer = undefined;
  }
}
