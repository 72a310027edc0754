// An image's ENTRYPOINT is not run; a caller may ask for one command in the background, and for a probe of it.
import { setTimeout as sleep } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { type CommandSpec, CommandSpecSchema, DsecError, type StartCommand } from "@dsec/api";
import { checkSpec } from "../commands/check.ts";
import { runCollected } from "../commands/collect.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";

const probeEveryMs = 200;
const probeTimeoutMs = 10_000;

/** Starts it and returns once its probe exits 0; without a probe, once it is started. The caller bounds the time. */
export async function runStartCommand(sandbox: Sandbox, start: StartCommand): Promise<void> {
  const { control } = sandbox;
  if (!control) throw new DsecError("UNAVAILABLE", "the sandbox's supervisor is gone");
  const spec = specOf(start);
  checkSpec(spec);
  await control.call({ case: "start", value: { commandId: "start-command", spec, attach: false } }, "command");
  if (start.readyProbe === "") return;
  for (let round = 1; ; round++) {
    if (sandbox.ending || !sandbox.control)
      throw new DsecError("UNAVAILABLE", "the sandbox ended before its probe succeeded");
    const probe = create(CommandSpecSchema, {
      what: { case: "shell", value: start.readyProbe },
      timeoutMs: BigInt(probeTimeoutMs),
      outputCapBytes: 4096n,
    });
    const result = await runCollected(sandbox, `ready-probe-${round}`, probe);
    if (result.outcome.exitCode === 0) return;
    await sleep(probeEveryMs);
  }
}

function specOf(start: StartCommand): CommandSpec {
  if (start.argv.length > 0) return create(CommandSpecSchema, { what: { case: "argv", value: { args: start.argv } } });
  return create(CommandSpecSchema, { what: { case: "shell", value: start.shell } });
}
