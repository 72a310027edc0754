// docs/limits.md repeats the table of defaults; this is what keeps it true.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { defaults, maximums, minimums, node, retention } from "../src/defaults.ts";

const rows = new Map<string, string[]>();
for (const line of readFileSync(join(import.meta.dirname, "../../../docs/limits.md"), "utf8").split("\n")) {
  if (!line.startsWith("| ")) continue;
  const [what = "", ...cells] = line
    .split("|")
    .slice(1, -1)
    .map((cell) => cell.trim());
  rows.set(what, cells);
}
const hours = (ms: number) => `${ms / 3_600_000} h`;
const mib = (bytes: number) => `${bytes / 1024 / 1024} MiB`;

test("the page on limits says what the code says", () => {
  const expected: Record<string, string[]> = {
    memory: [`${defaults.memoryLimitMb} MiB`, `${minimums.memoryLimitMb} MiB`, "the node's"],
    "disk (writable layer)": [`${defaults.diskLimitMb} MiB`, `${minimums.diskLimitMb} MiB`, "the node's"],
    processes: [`${defaults.pidsLimit}`, `${minimums.pidsLimit}`, `${maximums.pidsLimit}`],
    "CPU ceiling": ["none, only a weight", `${minimums.cpuCoresLimit} cores`, "the node's"],
    "memory request": [`the smaller of ${defaults.memoryRequestMb} MiB and the limit`, "", ""],
    "CPU request": [`${defaults.cpuCoresRequest} cores`, "", ""],
    "life (`ttl`)": [hours(defaults.ttlMs), `${minimums.ttlMs / 1000} s`, hours(maximums.ttlMs)],
    idle: ["none", `${minimums.idleMs / 1000} s`, hours(maximums.idleMs)],
    "time to make it (`create`)": [`${defaults.createMs / 1000} s`, "", ""],
    "kept after a stop (`keep_ms`)": ["not at all", "", hours(maximums.keepMs)],
    labels: ["none", "", `${maximums.labels}, together with the job ${maximums.labelBytes} characters`],
    "variables of the environment": [`PATH, LANG=${defaults.lang}`, "", `${maximums.envBytes / 1024} KiB together`],
    "network rules": ["none allowed", "", `${maximums.networkRules}`],
    user: [defaults.user, "", ""],
    "output kept, a stream (half head, half tail)": [mib(defaults.outputCapBytes), mib(maximums.outputCapBytes)],
    "standard input with the call": ["none", `${mib(maximums.stdinBytes)}, more by WriteInput`],
    "wait in one call": ["0", `${maximums.waitMs / 1000} s`],
    "overcommit of CPU": [`${node.overcommitCpu}`, "`overcommitCpu`"],
    "overcommit of memory": [`${node.overcommitMemory}`, "`overcommitMemory`"],
    sandboxes: [`${node.maxSandboxes}`, "`maxSandboxes`"],
    "starts at once": [`${node.startLimit}`, "`startLimit`"],
    "creates that wait for their start": [`${node.startQueue}`, ""],
    "memory that must be available for a new one": [
      `the larger of ${node.memoryFloorMb} MiB and ${node.memoryFloorShare * 100} % of the node`,
      "",
    ],
    tombstones: [hours(retention.tombstoneMs), `${retention.tombstones}, the oldest go first`],
    "create keys after the end": [hours(retention.createKeyMs), ""],
    "events of a sandbox": ["its life", `${retention.events}`],
    "entries of a page of a list": ["", `${maximums.pageSize}`],
  };
  for (const [what, cells] of Object.entries(expected)) expect([what, rows.get(what)]).toEqual([what, cells]);
});
