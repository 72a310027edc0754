// The one table of defaults, minimums and bounds of an edge; docs/limits.md repeats it, and a test compares them.

const hour = 3_600_000;

/** What a sandbox gets where the caller asks for nothing. */
export const defaults = {
  memoryLimitMb: 2048,
  diskLimitMb: 10_240,
  pidsLimit: 512,
  /** 0: no ceiling, only a weight. */
  cpuCoresLimit: 0,
  /** MiB; the smaller of this and the limit. */
  memoryRequestMb: 32,
  cpuCoresRequest: 0.02,
  ttlMs: 24 * hour,
  /** 0: none. */
  idleMs: 0,
  createMs: 120_000,
  outputCapBytes: 16 * 1024 * 1024,
  user: "root",
  lang: "C.UTF-8",
  path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
} as const;

/** Below these a limit is refused with INVALID_LIMIT. */
export const minimums = {
  memoryLimitMb: 16,
  diskLimitMb: 16,
  pidsLimit: 8,
  cpuCoresLimit: 0.01,
  ttlMs: 1000,
  idleMs: 1000,
} as const;

/** Above these a call is refused. */
export const maximums = {
  pidsLimit: 32_768,
  ttlMs: 30 * 24 * hour,
  idleMs: 30 * 24 * hour,
  keepMs: 7 * 24 * hour,
  outputCapBytes: 64 * 1024 * 1024,
  stdinBytes: 1024 * 1024,
  waitMs: 300_000,
  labels: 64,
  labelBytes: 4096,
  envBytes: 700 * 1024,
  networkRules: 256,
  pageSize: 1000,
} as const;

/** What the edge keeps, and for how long. */
export const retention = {
  tombstoneMs: 24 * hour,
  tombstones: 200_000,
  createKeyMs: hour,
  events: 64,
} as const;

/** Of the node. */
export const node = {
  overcommitCpu: 50,
  overcommitMemory: 5,
  maxSandboxes: 3200,
  startLimit: 8,
  startQueue: 4096,
  /** New sandboxes are refused while less than this is available: the larger of MiB and a share of the node. */
  memoryFloorMb: 256,
  memoryFloorShare: 0.02,
} as const;
