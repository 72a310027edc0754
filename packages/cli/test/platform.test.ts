// The command line against the whole platform.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { onPlatform } from "../../libdsec/test/support/platform.ts";
import { dsec, mainFile } from "./support/dsec.ts";
import { dockerSave, ociLayout } from "./support/images.ts";

const on = onPlatform();
const dir = mkdtempSync(join(tmpdir(), "dsec-cli-"));
afterAll(() => rmSync(dir, { recursive: true }));
const env = () => ({ DSEC_ENDPOINT: on.platform.endpoint(), DSEC_API_KEY: on.platform.apiKey });
const run = (...args: string[]) => dsec(args, { env: env() });

test("run gives output and code of the command, passes input, and leaves no sandbox", async () => {
  expect(await run("run", "base", "--", "sh", "-c", "echo out; echo err >&2; exit 7")).toEqual({
    code: 7,
    stdout: "out\n",
    stderr: "err\n",
  });
  expect((await run("run", "base", "--", "sh", "-c", "kill -9 $$")).code).toBe(137);
  expect((await run("run", "base", "--timeout", "300ms", "--", "sleep", "60")).code).toBe(124);
  expect((await run("run", "base", "--", "/no/such")).code).toBe(127);
  const nowhere = await run("run", "base", "--workdir", "/no/such", "--", "pwd");
  expect([nowhere.code, nowhere.stderr]).toEqual([125, expect.stringContaining("/no/such")]);
  expect(
    (await dsec(["run", "base", "--", "sha256sum"], { env: env(), input: Buffer.alloc(3 << 20) })).stdout,
  ).toContain("bbd05cf6097ac9b1f89ea29d2542c1b7b67ee46848393895f5a9e43fa1f621e5");
  const left = [];
  for await (const info of on.client.list()) if (info.id !== on.sandbox.id) left.push(info.id);
  expect(left).toEqual([]);
});

test("a fault of the platform is 125, not a result", async () => {
  const ran = await run("run", "no-such-image", "--", "true");
  expect(ran.code).toBe(125);
  expect(ran.stderr).toContain("next:");
});

test("an interrupt stops the sandbox", async () => {
  const child = spawn(
    process.execPath,
    [mainFile, "run", "base", "--label", "int=1", "--", "sh", "-c", "echo up; sleep 600"],
    { env: { ...process.env, ...env() }, stdio: ["ignore", "pipe", "ignore"] },
  );
  await new Promise((resolve) => child.stdout.once("data", resolve));
  child.kill("SIGINT");
  expect(await new Promise((resolve) => child.on("exit", resolve))).toBe(130);
  for await (const _ of on.client.list({ labels: { int: "1" } })) expect.unreachable();
});

test("create, exec, history, logs, events, usage, extend, stop", async () => {
  const id = (await run("create", "base", "--label", "cli=1", "--ttl", "5m")).stdout.trim();
  expect(id).toMatch(/^t[a-z0-9]+$/);
  expect(
    await run("exec", id, "--env", "A=b", "--workdir", "/tmp", "--", "sh", "-c", "echo $A; pwd; exit 3"),
  ).toMatchObject({ code: 3, stdout: "b\n/tmp\n" });
  const detached = (await run("exec", "-d", id, "--", "sh", "-c", "echo later")).stdout.trim();
  expect((await run("logs", id, detached)).stdout).toBe("later\n");
  expect((await run("logs", id)).stdout).toBe("later\n");
  const long = "head -c 20000000 /dev/zero";
  const noisy = (await run("exec", "-d", id, "--", "sh", "-c", long)).stdout.trim();
  const missing = await run("logs", id, noisy);
  expect(missing.stderr).toMatch(/^dsec: \d+ bytes of stdout are no longer kept\n$/);
  const history = JSON.parse((await run("commands", id, "--json")).stdout);
  expect(history.map((one: { name: string }) => one.name)).toContain(detached);
  expect(JSON.parse((await run("info", id, "--json")).stdout)).toMatchObject({
    name: id,
    state: "RUNNING",
    labels: { cli: "1" },
  });
  expect(JSON.parse((await run("events", id, "--json")).stdout)[0]).toMatchObject({ name: "CREATED" });
  expect(JSON.parse((await run("usage", id, "--json")).stdout).name).toBe(id);
  expect((await run("extend", id, "1h")).code).toBe(0);
  expect((await run("ls", "-q", "--label", "cli=1")).stdout).toBe(`${id}\n`);
  expect((await run("stop", "--label", "cli=1")).code).toBe(0);
  const gone = await run("exec", id, "--", "true");
  expect([gone.code, gone.stderr.match(/\(STOPPED\)/g)?.length]).toEqual([125, 1]);
  // Why it ended can still be read.
  expect(JSON.parse((await run("events", id, "--json")).stdout).at(-1)).toMatchObject({
    name: "ENDED",
    endReason: "STOPPED",
  });
});

test("cp takes files and trees in both directions, as cp does", async () => {
  const { id } = on.sandbox;
  mkdirSync(join(dir, "tree/sub"), { recursive: true });
  writeFileSync(join(dir, "tree/sub/f"), "content");
  expect(await run("cp", join(dir, "tree"), `${id}:/work`)).toMatchObject({ code: 0 });
  expect(await on.sandbox.files.readText("/work/sub/f")).toBe("content");
  expect((await run("cp", join(dir, "tree"), `${id}:/work`)).code).toBe(0);
  expect(await on.sandbox.files.readText("/work/tree/sub/f")).toBe("content");
  expect((await run("cp", join(dir, "tree/sub/f"), `${id}:/work/`)).code).toBe(0);
  expect(await on.sandbox.files.readText("/work/f")).toBe("content");
  expect((await run("cp", `${id}:/work/sub`, dir)).code).toBe(0);
  expect(readFileSync(join(dir, "sub/f"), "utf8")).toBe("content");
  expect((await run("cp", `${id}:/work/f`, join(dir, "copy"))).code).toBe(0);
  expect(readFileSync(join(dir, "copy"), "utf8")).toBe("content");
  expect((await run("cp", `${id}:/none`, dir)).code).toBe(1);
  expect((await run("cp", "a", "b")).code).toBe(2);
  execFileSync("mkfifo", [join(dir, "tree/pipe")]);
  expect((await run("cp", join(dir, "tree"), `${id}:/odd`)).stderr).toContain("left out pipe: it is a socket, a pipe");
  const taken = await run("cp", `${id}:/work`, "/dev/null/here");
  expect([taken.code, taken.stderr]).toEqual([1, expect.stringMatching(/dsec: \/dev\/null.*\n {2}next: /)]);
});

test("a shell ends with its piped input, and its sandbox with a signal", async () => {
  for (const [input, said] of [
    ["echo hello-$((1 + 1))\n", "hello-2"],
    ["((( \n", "bash"],
    ["printf nothing", ""],
  ] as const) {
    const ran = await dsec(["shell", "base", "--label", "shell=1"], { env: env(), input });
    expect(ran.stdout).toContain(said);
  }
  const child = spawn(process.execPath, [mainFile, "shell", "base", "--label", "shell=1"], {
    env: { ...process.env, ...env() },
    stdio: ["pipe", "pipe", "ignore"],
  });
  await new Promise((resolve) => child.stdout.once("data", resolve));
  child.kill("SIGTERM");
  expect(await new Promise((resolve) => child.on("exit", resolve))).toBe(143);
  for await (const _ of on.client.list({ labels: { shell: "1" } })) expect.unreachable();
});

test("output that nobody takes ends the command, and a disk that is full is said", async () => {
  const { id } = on.sandbox;
  const toShell = (text: string) =>
    new Promise<{ code: number | null; stderr: string }>((resolve) => {
      const child = spawn("bash", ["-c", text, "bash", process.execPath, mainFile], {
        env: { ...process.env, ...env() },
      });
      let stderr = "";
      child.stderr.on("data", (part) => {
        stderr += part;
      });
      child.on("close", (code) => resolve({ code, stderr }));
    });
  const head = await toShell(`"$1" "$2" exec ${id} -- yes | head -1; exit \${PIPESTATUS[0]}`);
  expect(head.code).toBe(141);
  const full = await toShell(`"$1" "$2" exec ${id} -- echo hi > /dev/full`);
  expect([full.code, full.stderr]).toEqual([
    1,
    expect.stringMatching(/^dsec: stdout cannot be written: .*\n {2}next: .*\n$/),
  ]);
  const running = [];
  for await (const command of on.sandbox.commands()) if (command.state === "running") running.push(command.argv);
  expect(running).toEqual([]);
});

test("a terminal of ours is joined to one inside", async () => {
  // script(1) gives us a terminal.
  const line = `${process.execPath} ${mainFile} exec -it ${on.sandbox.id} -- sh -c 'tty; exit 9'`;
  let text = "";
  let code = 0;
  try {
    text = execFileSync("script", ["-qec", line, "/dev/null"], {
      env: { ...process.env, ...env() },
      stdio: ["pipe", "pipe", "pipe"],
    }).toString();
  } catch (error) {
    code = (error as { status: number }).status;
    text = String((error as { stdout: Buffer }).stdout);
  }
  expect(code).toBe(9);
  expect(text).toContain("/dev/pts/");
  const shell = await dsec(["shell", on.sandbox.id], { env: env(), input: "echo in-$((40+2)); exit 5\n" });
  expect(shell.code).toBe(5);
  expect(shell.stdout).toContain("in-42");
});

test("images from an OCI layout and a docker save file run with their environment", async () => {
  // Without a shell of their own: commands of the platform's bash work all the same.
  await ociLayout(join(dir, "layout"), { hello: "oci" }, ["FROM_IMAGE=oci"]);
  writeFileSync(join(dir, "saved.tar"), await dockerSave({ hello: "docker" }, ["FROM_IMAGE=docker"]));
  expect((await run("image", "import", "small-oci", join(dir, "layout"))).stdout).toMatch(/small-oci@v1\n$/);
  expect((await run("image", "import", "small-docker", join(dir, "saved.tar"))).stdout).toMatch(/small-docker@v1\n$/);
  for (const kind of ["oci", "docker"]) {
    await using sandbox = await on.client.runContainer({ containerImage: `small-${kind}` });
    expect((await sandbox.runShell('echo "$(</hello) $FROM_IMAGE"')).stdout).toBe(`${kind} ${kind}\n`);
  }
});

test("layers from a directory and a packed tar; projects, keys, nodes", async () => {
  mkdirSync(join(dir, "ws"), { recursive: true });
  writeFileSync(join(dir, "ws/hello"), "from the workspace");
  expect((await run("layer", "import", "--kind", "workspace", "ws", join(dir, "ws"))).stdout).toMatch(/ws@v1\n$/);
  execFileSync("tar", ["-czf", join(dir, "ws.tgz"), "-C", join(dir, "ws"), "."]);
  expect((await run("layer", "import", "--kind", "toolkit", "tk", join(dir, "ws.tgz"))).code).toBe(0);
  const layers = JSON.parse((await run("layer", "ls", "--json")).stdout);
  expect(layers.map((one: { kind: string }) => one.kind)).toEqual(
    expect.arrayContaining(["base", "toolkit", "workspace"]),
  );
  expect((await run("run", "base", "--workspace", "ws", "--toolkit", "tk", "--", "cat", "/hello")).stdout).toBe(
    "from the workspace",
  );
  expect((await run("layer", "show", "ws", "--json")).stdout).toContain('"kind": "workspace"');
  expect((await run("layer", "rm", "ws@v1")).code).toBe(0);
  expect(JSON.parse((await run("node", "ls", "--json")).stdout)[0]).toMatchObject({
    name: on.platform.edges[0],
    healthy: true,
  });

  const project = JSON.parse((await run("project", "ls", "--json")).stdout)[0].name;
  expect((await run("project", "create", `${project}/cli`, "--sandboxes", "1")).code).toBe(0);
  const secret = (await run("key", "create", "--project", `${project}/cli`, "--name", "test")).stdout.trim();
  const limited = { DSEC_ENDPOINT: on.platform.endpoint(), DSEC_API_KEY: secret };
  const made = (await dsec(["create", `${project}/base`], { env: limited })).stdout.trim();
  expect((await dsec(["create", `${project}/base`], { env: limited })).stderr).toMatch(/quota/i);
  expect((await dsec(["stop", made], { env: limited })).code).toBe(0);
  const keys = JSON.parse((await run("key", "ls", "--project", `${project}/cli`, "--json")).stdout);
  expect((await run("key", "revoke", keys[0].name)).code).toBe(0);
});
