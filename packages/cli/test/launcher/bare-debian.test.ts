// From nothing to a running platform and a whole suite, in Debian roots in which nothing is installed. With --all only.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { BareRoot } from "./bare-root.ts";
import { freePort, root } from "./support.ts";

const why = reasonToSkip();

const minute = 60_000;

/** A command with what it took and how it ended, alone on a line. */
const timed = (name: string, command: string) =>
  `from=$(date +%s); ${command}; echo "@ ${name}: exit $? after $(($(date +%s) - from)) s"`;

describe.skipIf(why !== "")(`a bare Debian${why && ` (${why})`}`, () => {
  test.each(["bookworm", "trixie"])(
    "%s: quickstart from nothing, down, and every test",
    async (suite) => {
      await using bare = await BareRoot.make(suite);
      const port = await freePort();
      const script = [
        timed("doctor", "./dsec doctor"),
        timed("first quickstart", `./dsec quickstart --port ${port}`),
        timed("second quickstart", `./dsec quickstart --port ${port}`),
        `./dsec quickstart --port ${port} >/tmp/third 2>&1 & given=$!`,
        'until grep -q "sandboxes at once" /tmp/third || ! kill -0 $given; do sleep 0.1; done',
        "kill -INT $given; wait $given",
        'echo "@ given up: exit $?, $(./dsec ls | wc -l) alive, $(ls -A /var/tmp | wc -l) left in /var/tmp"',
        timed("doctor --try", "./dsec doctor --try"),
        timed("down", "./dsec down"),
        'echo "@ left in /run: $(ls -A /run | tr "\\n" " ")"',
        'echo "@ cgroups left: $(cat /var/lib/dsec/settings/edges.json | tr -d \'[]" \' | xargs -I {} find /sys/fs/cgroup -path "*/dsec/{}" | tr "\\n" " ")"',
        timed("test", "./dsec test </dev/null"),
      ];
      const log = await bare.run(script.join("\n"), 55 * minute);
      const said = (name: string) => new RegExp(`^@ ${name}: (.*)$`, "m").exec(log)?.[1]?.trim();
      const seconds = (name: string) => Number(/after (\d+) s/.exec(said(name) ?? "")?.[1]);
      const end = `\n${log.split("\n").slice(-300).join("\n")}`;
      for (const name of ["doctor", "first quickstart", "second quickstart", "doctor --try", "down", "test"]) {
        console.log(`${suite}: ${name}: ${said(name)}`);
        expect(said(name), end).toMatch(/^exit 0 /);
      }
      expect(seconds("first quickstart")).toBeLessThan(600);
      expect(log).toMatch(/^ok .*try: hostd:.*"namespaces","ok":true/m);
      expect(log).not.toMatch(/^(lost|MISSING) /m);
      expect(log).toMatch(/100 ready in .*all alive together/);
      expect(log).toContain("100 checks right");
      expect(log).toContain("] it was up: ");
      expect(said("given up")).toBe("exit 1, 0 alive, 0 left in /var/tmp");
      expect(said("left in /run")).toBe("");
      expect(said("cgroups left")).toBe("");
      expect(log).toMatch(/^\d{3,} passed, 0 failed(, \d+ skipped)?$/m);
    },
    70 * minute,
  );

  test("what was killed in the middle of dpkg is taken up again", { timeout: 20 * minute }, async () => {
    await using bare = await BareRoot.make("trixie");
    const script = `
printf '#!/bin/sh\\n# of dsec, PID 4194303, while it installs\\nexit 101\\n' >/usr/sbin/policy-rc.d
for pause in 0.1 1 4; do
  setsid ./dsec help >/dev/null 2>&1 &
  until [ -n "$(dpkg --audit)" ]; do sleep 0.02; done
  sleep $pause
  kill -KILL -$!
  wait
  [ -z "$(dpkg --audit)" ] || echo "@ broken off"
done
./dsec help | head -n 1
echo "@ left: $(dpkg --audit)$(ls -d /usr/sbin/policy-rc.d .dsec/*.tmp.* 2>/dev/null)"`;
    const log = await bare.run(script, 15 * minute);
    expect(log).toContain("@ broken off");
    expect(log).toContain("that was broken off or goes on");
    expect(log, log.slice(-3000)).toMatch(/^Usage: dsec/m);
    expect(log).toMatch(/^@ left: $/m);
  });
});

function reasonToSkip(): string {
  if (process.env["DSEC_TEST_ALL"] !== "1") return "takes long: with --all only";
  if (process.getuid?.() !== 0) return "needs root";
  if (!existsSync("/usr/bin/mmdebstrap")) return "needs mmdebstrap";
  try {
    execFileSync("git", ["-C", root, "ls-files", "--error-unmatch", join(root, "dsec")], { stdio: "ignore" });
    return "";
  } catch {
    return "needs git and a clone: only tracked files are copied";
  }
}
