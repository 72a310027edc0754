// Images on their way to mounted layers.
import { createReadStream, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { defaultLimits, LayerStore } from "../src/layers/index.ts";
import {
  dockerArchive,
  here,
  importFile,
  layerTar,
  mklayerProgram,
  ociArchive,
  Scratch,
  seen,
  sh,
} from "./layers-support.ts";

const [setxattr, getxattr] = process.arch === "x64" ? [188, 191] : [5, 8];
const root = process.getuid?.() === 0;

/** Three layers with everything that merging has to get right, and the tree that they make. */
function layers(scratch: Scratch) {
  const first = layerTar(
    scratch,
    "first",
    `mkdir -p etc opt/old/deep usr/bin; echo one > etc/one; echo two > etc/two; ln etc/two etc/again
     echo x > opt/old/deep/x; cp /bin/true usr/bin/caps; ln -s usr/bin bin; mknod null c 1 3; mkfifo fifo
     truncate -s 2M sparse; echo mid | dd of=sparse bs=1 seek=1000000 conv=notrunc status=none
     touch $'odd\\nname\\xff'; perl -e 'my ($f, $n, $v) = ("usr/bin/caps", "security.capability", pack("V5", 0x02000001, 0x2000, 0, 0, 0)); syscall(${setxattr}, $f, $n, $v, 20, 0) == 0 or die $!'`,
    "gzip -nc",
  );
  const second = layerTar(
    scratch,
    "second",
    "mkdir -p etc opt/old; : > etc/.wh.one; : > opt/old/.wh..wh..opq; echo n > opt/old/n",
  );
  const third = layerTar(scratch, "third", "mkdir etc; echo changed > etc/two; chown 1234:5678 etc/two", "gzip -nc");
  const reference = scratch.dir("reference");
  const tar = "tar --xattrs --xattrs-include='*' -p --numeric-owner --exclude='.wh.*' -x";
  sh(
    reference,
    `${tar}zf ${first}; rm etc/one; find opt/old -mindepth 1 -delete; ${tar}f ${second}
     rm etc/two; ${tar}zf ${third}`,
  );
  return { files: [first, second, third], reference };
}

function unpacked(scratch: Scratch, file: string): string {
  sh(scratch.path, `zcat -f ${file} > ${file}.plain`);
  return `${file}.plain`;
}

const config = {
  Env: ["A=b", "PATH=/bin"],
  User: "1000:1000",
  WorkingDir: "/srv",
  Entrypoint: ["/e"],
  Cmd: ["c", "d"],
  Labels: { l: "v" },
};

describe.runIf(root)("an image of several layers", () => {
  test.each(["oci-archive", "docker-archive"] as const)("%s: is the tree that the layers make", async (format) => {
    using scratch = new Scratch();
    const { files, reference } = layers(scratch);
    const store = await scratch.store();
    // docker's layers are not compressed.
    const plain = files.map((file) => unpacked(scratch, file));
    const archive =
      format === "oci-archive" ? ociArchive(scratch, files, { config }) : dockerArchive(scratch, plain, config);
    const made = await importFile(store, archive, { format, kind: "base" });
    expect(made.existed).toBe(false);
    expect(made.digests).toHaveLength(1);
    expect(made.config).toMatchObject({
      env: config.Env,
      user: config.User,
      workingDir: config.WorkingDir,
      entrypoint: config.Entrypoint,
      cmd: config.Cmd,
      labels: config.Labels,
    });
    const [digest = ""] = made.digests;
    const mounted = scratch.mount(store.path(digest));
    expect(seen(mounted)).toBe(seen(reference));
    const capability = `my ($f, $k, $b) = ("usr/bin/caps", "security.capability", "\\0" x 64); my $n = syscall(${getxattr}, $f, $k, $b, 64); print unpack("H*", substr($b, 0, $n))`;
    expect(sh(mounted, `perl -e '${capability}'`)).toBe("0100000200200000000000000000000000000000");
    expect(readdirSync(scratch.join("data/staging/test"))).toEqual([]);
  });

  test("both kinds of archive, whole or compressed, give the same digest", async () => {
    using scratch = new Scratch();
    const { files } = layers(scratch);
    const plain = files.map((file) => unpacked(scratch, file));
    const store = await scratch.store();
    const oci = ociArchive(scratch, files);
    const first = await importFile(store, oci, { format: "oci-archive", kind: "base" });
    const docker = dockerArchive(scratch, plain, {});
    sh(scratch.path, `gzip -kc ${docker} > docker.tgz`);
    const second = await importFile(store, scratch.join("docker.tgz"), { format: "docker-archive", kind: "base" });
    expect(second.digests).toEqual(first.digests);
    expect(second.existed).toBe(true);
  });

  test("a hard link into an earlier run makes them one", async () => {
    using scratch = new Scratch();
    const store = await scratch.store();
    const first = layerTar(scratch, "first", "seq 1 9000 > a");
    // A layer of only the link.
    sh(scratch.dir("both"), "echo x > a; ln a b; tar -cf ../second.tar a b; tar --delete -f ../second.tar a");
    const archive = ociArchive(scratch, [first, scratch.join("second.tar")]);
    const made = await importFile(store, archive, {
      format: "oci-archive",
      kind: "base",
      limits: { collapseBytes: 4096 },
    });
    expect(made.digests).toHaveLength(1);
    expect(readdirSync(scratch.join("data/layers"))).toHaveLength(1);
    const mounted = scratch.mount(store.path(made.digests[0] ?? ""));
    expect(sh(mounted, "stat -c %h a b; cmp a b")).toBe("2\n2\n");
  });

  test("beyond the threshold it becomes several layers, and an overlay of them is the same tree", async () => {
    using scratch = new Scratch();
    const { files, reference } = layers(scratch);
    const store = await scratch.store();
    const archive = ociArchive(scratch, files);
    const limits = { collapseBytes: 4096 };
    const made = await importFile(store, archive, { format: "oci-archive", kind: "base", limits });
    expect(made.digests.length).toBeGreaterThan(1);
    const lower = made.digests.map((digest) => scratch.mount(store.path(digest))).reverse();
    const over = scratch.dir("over");
    sh(over, `mount -t overlay overlay -o lowerdir=${lower.join(":")} ${over}`);
    try {
      const list = "find . -printf '%p %y %m %U:%G %s %l\\n' | grep -v ' d ' | sort";
      expect(sh(over, list)).toBe(sh(reference, list));
    } finally {
      sh("/", `umount ${over}`);
    }
  });
});

test("the platform of this machine is taken from an index, and attestations are passed over", async () => {
  using scratch = new Scratch();
  const store = await scratch.store();
  const index = (own: object) => ({
    schemaVersion: 2,
    manifests: [
      { digest: `sha256:${"0".repeat(64)}`, size: 1, platform: { os: "linux", architecture: "s390x" } },
      { digest: `sha256:${"1".repeat(64)}`, size: 1, platform: { os: "unknown", architecture: "unknown" } },
      { ...own, platform: here },
    ],
  });
  const archive = ociArchive(scratch, [layerTar(scratch, "a", "echo a > a")], { index });
  expect((await importFile(store, archive, { format: "oci-archive" })).entries).toBe(2);
});

test("a tar is one layer, and `.wh.` names in it are ordinary", async () => {
  using scratch = new Scratch();
  const store = await scratch.store();
  const file = layerTar(scratch, "a", "echo a > .wh.name; mkdir d", "zstd -qc");
  const seenBytes: number[] = [];
  const made = await importFile(store, file, {
    format: "tar",
    kind: "workspace",
    onProgress: ({ bytes }) => seenBytes.push(bytes),
  });
  const [digest = ""] = made.digests;
  expect(made).toMatchObject({ existed: false, entries: 3, dataBytes: 4096 });
  expect(await store.info(digest)).toMatchObject({ version: 1, digest, entries: 3, data: { bytes: 4096 } });
  expect(store.has(digest)).toBe(true);
  expect((await store.list()).map((layer) => layer.digest)).toEqual([digest]);
  expect(await store.remove(digest)).toBe(true);
  expect(await store.remove(digest)).toBe(false);
  expect(store.has(digest)).toBe(false);
  await expect(store.info(digest)).rejects.toMatchObject({ reason: "LAYER_NOT_FOUND" });
  expect(readdirSync(scratch.join("data/layers"))).toEqual([]);
});

test("equal content imported at once is stored once", async () => {
  using scratch = new Scratch();
  const stores = await Promise.all([scratch.store("one", 3), scratch.store("two", 3)]);
  const file = layerTar(scratch, "a", "seq 1 100000 > a");
  const made = await Promise.all(
    stores.flatMap((store) => [1, 2, 3].map(() => importFile(store, file, { format: "tar" }))),
  );
  expect(new Set(made.flatMap(({ digests }) => digests)).size).toBe(1);
  expect(made.filter(({ existed }) => !existed)).toHaveLength(1);
  expect(readdirSync(scratch.join("data/layers"))).toHaveLength(1);
});

test("what an earlier run left in staging goes, a neighbour's stays", async () => {
  using scratch = new Scratch();
  for (const edge of ["one", "two"]) {
    mkdirSync(scratch.join("data/staging", edge, "import-x"), { recursive: true });
    writeFileSync(scratch.join("data/staging", edge, "import-x/1"), "left over");
  }
  await LayerStore.open({ dataDir: scratch.join("data"), edge: "one", mklayer: mklayerProgram() });
  expect(readdirSync(scratch.join("data/staging/one"))).toEqual([]);
  expect(readFileSync(scratch.join("data/staging/two/import-x/1"), "utf8")).toBe("left over");
  expect(defaultLimits.collapseBytes).toBe(3e9);
});

test("an import that waits for its turn can be given up", async () => {
  using scratch = new Scratch();
  const store = await scratch.store("test", 1);
  const file = layerTar(scratch, "a", "echo a > a");
  const held = new AbortController();
  const { PassThrough } = await import("node:stream");
  const first = store.import({ format: "tar", body: new PassThrough(), signal: held.signal });
  const waiting = new AbortController();
  const second = store.import({ format: "tar", body: createReadStream(file), signal: waiting.signal });
  const third = importFile(store, file, { format: "tar" });
  waiting.abort();
  await expect(second).rejects.toMatchObject({ reason: "CANCELLED" });
  held.abort();
  await expect(first).rejects.toMatchObject({ reason: "CANCELLED" });
  expect((await third).entries).toBe(2);
});
