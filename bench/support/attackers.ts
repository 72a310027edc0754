// What a misbehaving agent does, alone in a sandbox with default limits, until it is told to stop.
import type { Sandbox } from "@dsec/libdsec";

type Attack = (sandbox: Sandbox, signal: AbortSignal) => Promise<void>;

/** Shell text started again and again: most of these end when the sandbox's limit is met. */
const repeat =
  (text: string): Attack =>
  async (sandbox, signal) => {
    while (!signal.aborted) {
      try {
        await sandbox.runShell(text, { timeoutMs: 20_000, signal });
      } catch (error) {
        if (signal.aborted) return;
        throw error;
      }
    }
  };

const python = (program: string) => `python3 -c '${program}'`;

export const attackers: ReadonlyMap<string, Attack> = new Map<string, Attack>([
  ["yes", repeat("yes")],
  ["forkbomb", repeat("bomb() { bomb | bomb & }; bomb; sleep 20")],
  ["memory", repeat(python("x = []\nwhile True: x.append(bytearray(1 << 24))"))],
  ["disk", repeat("dd if=/dev/zero of=/fill bs=1M; rm -f /fill")],
  ["files", repeat("i=0; while [ $i -lt 10000 ]; do : > /tmp/f$i; i=$((i+1)); done; rm -f /tmp/f*")],
  ["line", repeat("head -c 100000000 /dev/zero | tr '\\0' x")],
  ["binary", repeat("head -c 50000000 /dev/urandom")],
  ["child", repeat("sleep 1000 & echo started")],
  ["killall", repeat("kill -9 -1; sleep 1")],
  ["overwrite", repeat("for f in /bin/bash /lib/x86_64-linux-gnu/libc.so.6; do echo broken > $f; done; sleep 1")],
]);
