// What the node is and how busy it is, as the kernel says.
import { readFileSync, statfsSync } from "node:fs";
import os from "node:os";

export interface NodeSize {
  readonly cpus: number;
  readonly memoryMb: number;
  /** Size of the file system that holds the data directory, MiB. */
  readonly diskMb: number;
}

export interface NodeUse {
  readonly memoryAvailableMb: number;
  /** 0 to 1, since the reading before. */
  readonly cpuBusy: number;
}

export interface NodeMeter {
  readonly size: NodeSize;
  use(): NodeUse;
}

const freshMs = 200;

/** Reads /proc, at most every 200 ms. */
export class ProcMeter implements NodeMeter {
  readonly size: NodeSize;
  private readAt = Number.NEGATIVE_INFINITY;
  private busyTicks = 0;
  private allTicks = 0;
  private last: NodeUse = { memoryAvailableMb: 0, cpuBusy: 0 };

  constructor(dataDir: string) {
    const disk = statfsSync(dataDir);
    this.size = {
      cpus: os.availableParallelism(),
      memoryMb: Math.floor(os.totalmem() / 1024 / 1024),
      diskMb: Math.floor((disk.blocks * disk.bsize) / 1024 / 1024),
    };
  }

  use(): NodeUse {
    const now = performance.now();
    if (now - this.readAt < freshMs) return this.last;
    this.readAt = now;
    const available = /^MemAvailable:\s+(\d+)/m.exec(readFileSync("/proc/meminfo", "utf8"))?.[1];
    this.last = { memoryAvailableMb: Math.floor(Number(available ?? 0) / 1024), cpuBusy: this.cpuBusy() };
    return this.last;
  }

  private cpuBusy(): number {
    const line = readFileSync("/proc/stat", "utf8").split("\n", 1)[0] ?? "";
    const ticks = line.split(/\s+/).slice(1, 9).map(Number);
    const all = ticks.reduce((sum, n) => sum + n, 0);
    const busy = all - (ticks[3] ?? 0) - (ticks[4] ?? 0);
    const share = all > this.allTicks ? (busy - this.busyTicks) / (all - this.allTicks) : this.last.cpuBusy;
    this.busyTicks = busy;
    this.allTicks = all;
    return Math.min(1, Math.max(0, share));
  }
}
