// Images that are damaged or hostile: a typed error, and nothing left behind.
import { createReadStream, readdirSync, readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import { Readable } from "node:stream";
import { DsecError } from "@dsec/api";
import { afterEach, beforeEach, expect, test } from "vitest";
import { NodeLayers } from "../src/http/layers.ts";
import { LayerStore } from "../src/layers/index.ts";
import {
  importFile,
  type LayoutOptions,
  layerTar,
  ociArchive,
  reasonOf,
  Scratch,
  sh,
  tarOf,
} from "./layers-support.ts";

let scratch: Scratch;
beforeEach(() => {
  scratch = new Scratch();
});
afterEach(() => {
  expect(readdirSync(scratch.join("data/layers"))).toEqual([]);
  expect(readdirSync(scratch.join("data/staging/test"))).toEqual([]);
  scratch[Symbol.dispose]();
});

async function refused(file: string, format: "tar" | "oci-archive" | "docker-archive", limits = {}): Promise<string> {
  return reasonOf(importFile(await scratch.store(), file, { format, limits }));
}

const oci = (options: LayoutOptions = {}) =>
  ociArchive(scratch, [layerTar(scratch, "a", "seq 1 50000 > a", "gzip -nc")], options);

test.each(["layer", "config", "manifest"] as const)("a %s that is not what its digest says", async (kind) => {
  const spoil = (blob: Buffer, of: string) =>
    of === kind ? Buffer.concat([blob.subarray(0, -1), Buffer.from("!")]) : blob;
  expect(await refused(oci({ spoil }), "oci-archive")).toBe("ARCHIVE_INVALID");
});

test("an archive cut short, anywhere", async () => {
  const whole = readFileSync(oci());
  for (const part of [0, 1, 511, 512, 700, whole.length >> 1, whole.length - 12_000]) {
    writeFileSync(scratch.join("cut"), whole.subarray(0, part));
    expect(await refused(scratch.join("cut"), "oci-archive"), `${part} bytes`).toBe("ARCHIVE_INVALID");
  }
  const layer = readFileSync(scratch.join("a.tar"));
  writeFileSync(scratch.join("cut"), layer.subarray(0, layer.length >> 1));
  expect(await refused(scratch.join("cut"), "tar")).toBe("ARCHIVE_INVALID");
});

test("an image for another machine, of several images, of no image", async () => {
  expect(await refused(oci({ platform: { os: "linux", architecture: "s390x" } }), "oci-archive")).toBe(
    "ARCHIVE_INVALID",
  );
  const two = (own: object) => ({ manifests: [own, { ...own, digest: `sha256:${"1".repeat(64)}` }] });
  expect(await refused(oci({ index: two }), "oci-archive")).toBe("ARCHIVE_INVALID");
  expect(await refused(oci({ index: () => ({ manifests: "none" }) }), "oci-archive")).toBe("ARCHIVE_INVALID");
  expect(await refused(layerTar(scratch, "b", "echo b > b"), "oci-archive")).toBe("ARCHIVE_INVALID");
});

test("blobs named by a path instead of a digest", async () => {
  const outside = (own: object) => ({ manifests: [{ ...own, digest: "sha256:../../../../etc/passwd" }] });
  expect(await refused(oci({ index: outside }), "oci-archive")).toBe("ARCHIVE_INVALID");
  const dir = scratch.dir("docker");
  writeFileSync(`${dir}/manifest.json`, JSON.stringify([{ Config: "../../../etc/passwd", Layers: ["/etc/shadow"] }]));
  expect(await refused(tarOf(dir), "docker-archive")).toBe("ARCHIVE_INVALID");
  sh(dir, "ln -s /etc/passwd c.json; ln -s /etc/shadow layer.tar");
  writeFileSync(`${dir}/manifest.json`, JSON.stringify([{ Config: "c.json", Layers: ["layer.tar"] }]));
  expect(await refused(tarOf(dir), "docker-archive")).toBe("ARCHIVE_INVALID");
});

test("names that lead out of the root, in the layer and in the archive", async () => {
  sh(scratch.path, "echo x > x; tar -Pcf up.tar --transform 's,^,../,' x; tar -Pcf abs.tar $PWD/x");
  expect(await refused(scratch.join("up.tar"), "tar")).toBe("PATH_LEAVES_ROOT");
  expect(await refused(scratch.join("abs.tar"), "tar")).toBe("PATH_LEAVES_ROOT");
  expect(await refused(ociArchive(scratch, [scratch.join("up.tar")]), "oci-archive")).toBe("PATH_LEAVES_ROOT");
});

test("bombs and more than the limits", async () => {
  const bomb = layerTar(scratch, "bomb", "head -c 150000000 /dev/zero > z", "gzip -9nc");
  expect(await refused(bomb, "tar")).toBe("ARCHIVE_LIMIT");
  expect(await refused(ociArchive(scratch, [bomb]), "oci-archive")).toBe("ARCHIVE_LIMIT");
  expect(await refused(bomb, "tar", { maxRatio: 5000, maxBytes: 50_000_000 })).toBe("ARCHIVE_LIMIT");
  const many = layerTar(scratch, "many", "seq 1 300 | xargs touch");
  expect(await refused(many, "tar", { maxEntries: 200 })).toBe("ARCHIVE_LIMIT");
  expect(await refused(many, "tar", { uploadBytes: 1000 })).toBe("ARCHIVE_LIMIT");
  expect(await refused(oci(), "oci-archive", { uploadBytes: 1000 })).toBe("ARCHIVE_LIMIT");
  expect(await refused(oci(), "oci-archive", { maxBlobs: 2 })).toBe("ARCHIVE_LIMIT");
  expect(await refused(ociArchive(scratch, [many, many, many]), "oci-archive", { maxLayers: 2 })).toBe("ARCHIVE_LIMIT");
});

test.each(["tar", "oci-archive"] as const)("an upload of a %s that breaks off", async (format) => {
  const file = format === "tar" ? layerTar(scratch, "a", "seq 1 50000 > a") : oci();
  const store = await scratch.store();
  const broken = async function* () {
    yield readFileSync(file).subarray(0, 20_000);
    throw new Error("the connection was reset");
  };
  expect(await reasonOf(store.import({ format, body: Readable.from(broken(), { objectMode: false }) }))).toBe(
    "ARCHIVE_INVALID",
  );
});

test.each(["tar", "oci-archive"] as const)("an import of a %s that is given up in the middle", async (format) => {
  const file = format === "tar" ? layerTar(scratch, "a", "seq 1 50000 > a") : oci();
  const store = await scratch.store();
  const given = new AbortController();
  const stalled = async function* () {
    yield readFileSync(file).subarray(0, 20_000);
    setImmediate(() => given.abort());
    await new Promise(() => {});
  };
  const body = Readable.from(stalled(), { objectMode: false });
  expect(await reasonOf(store.import({ format, body, signal: given.signal }))).toBe("CANCELLED");
});

test.each(["tar", "oci-archive"] as const)("an upload of a %s that stalls", async (format) => {
  const store = await scratch.store();
  const stalled = async function* () {
    yield Buffer.alloc(100);
    await new Promise(() => {});
  };
  const body = Readable.from(stalled(), { objectMode: false });
  expect(await reasonOf(store.import({ format, body, limits: { maxSeconds: 1 } }))).toBe("ARCHIVE_LIMIT");
});

test("a later run that is damaged leaves no earlier one", async () => {
  const good = layerTar(scratch, "good", "seq 1 9000 > a");
  sh(scratch.path, "head -c 5000 good.tar > bad.tar");
  const file = ociArchive(scratch, [good, scratch.join("bad.tar")]);
  expect(await refused(file, "oci-archive", { collapseBytes: 4096 })).toBe("ARCHIVE_INVALID");
});

test("a builder that cannot be run", async () => {
  const store = await LayerStore.open({ dataDir: scratch.join("data"), edge: "test", mklayer: "/does/not/exist" });
  const file = layerTar(scratch, "a", "echo a > a");
  expect(await reasonOf(store.import({ format: "tar", body: createReadStream(file) }))).toBe("INTERNAL");
});

test("a refused upload is answered while it is being sent", async () => {
  const layers = new NodeLayers(await scratch.store());
  const server = http.createServer((req, res) =>
    layers.handleImport(req, res).catch((error) => res.end(DsecError.from(error).reason)),
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  try {
    const answer = await new Promise<string>((resolve, reject) => {
      const req = http.request({ port, method: "POST", path: "/v1/layers?kind=base&format=tar" }, (res) => {
        res.setEncoding("utf8").on("data", resolve);
      });
      req.on("error", reject);
      // More is to come, but the first bytes are no archive.
      req.write(Buffer.alloc(4096, "no archive "));
    });
    expect(answer).toBe("ARCHIVE_INVALID");
  } finally {
    server.closeAllConnections();
    server.close();
  }
});
