import { create } from "@bufbuild/protobuf";
import { ImageConfigSchema, LayerKind } from "@dsec/api";
import { beforeEach, expect, test } from "vitest";
import { KeyStore } from "../src/keys.ts";
import { LayerResolver } from "../src/layer-resolver.ts";
import { type LayerContent, LayerStore } from "../src/layers.ts";
import { ProjectStore } from "../src/projects.ts";
import { onEachDatabase } from "./support/databases.ts";

const digest = (letter: string) => `sha256:${letter.repeat(64)}`;
const content = (letter: string, kind: LayerKind = LayerKind.BASE): LayerContent => ({
  kind,
  digests: [digest(letter)],
  metadataBytes: 10n,
  dataBytes: 20n,
  entries: 3n,
  config: create(ImageConfigSchema, { env: ["PATH=/bin"], labels: { a: "b" } }),
  builtFrom: "a test",
});
const main = { keyId: "k", project: "main", role: "admin" } as const;
const inA = { keyId: "a", project: "main/a", role: "admin" } as const;

onEachDatabase("stores", (current) => {
  beforeEach(async () => {
    const rows = ["main", "public"].map((path) => ({
      path,
      quota_sandboxes: null,
      quota_cpu_cores: null,
      quota_memory_mb: null,
      created_at_ms: 1,
    }));
    await current().insertInto("projects").values(rows).execute();
  });

  test("projects nest, keep their quotas, and are deleted only when empty", async () => {
    const projects = new ProjectStore(current());
    await projects.create("main/a", { sandboxes: 5, memoryMb: 2 ** 40 });
    await projects.create("main/a/b", { cpuCores: 0.5 });
    await expect(projects.create("main/a", {})).rejects.toMatchObject({ reason: "NAME_TAKEN" });
    await expect(projects.create("main/x/y", {})).rejects.toMatchObject({ reason: "PROJECT_NOT_FOUND" });
    await expect(projects.create("other", {})).rejects.toMatchObject({ reason: "INVALID_ARGUMENT" });
    await expect(projects.create("public/x", {})).rejects.toMatchObject({ reason: "INVALID_ARGUMENT" });
    const chain = await projects.chain("main/a/b");
    expect(chain.map((row) => [row.path, row.quota_sandboxes, row.quota_cpu_cores, row.quota_memory_mb])).toEqual([
      ["main/a/b", null, 0.5, null],
      ["main/a", 5, null, 2 ** 40],
      ["main", null, null, null],
    ]);
    await projects.setQuota("main/a", { sandboxes: 0 });
    expect((await projects.chain("main/a"))[0]).toMatchObject({ quota_sandboxes: 0, quota_memory_mb: null });
    expect((await projects.list("main")).map((row) => row.path)).toEqual(["main", "main/a", "main/a/b"]);
    await expect(projects.delete("main/a")).rejects.toMatchObject({ reason: "PROJECT_IN_USE" });
    const keys = new KeyStore(current());
    const { row } = await keys.create({ project: "main/a/b", role: "viewer", name: "", ttlMs: 0 });
    await expect(projects.delete("main/a/b")).rejects.toMatchObject({ reason: "PROJECT_IN_USE" });
    await keys.revoke(row.id, () => true);
    await projects.delete("main/a/b");
    await expect(projects.chain("main/a/b")).rejects.toMatchObject({ reason: "PROJECT_NOT_FOUND" });
    await expect(projects.delete("main")).rejects.toMatchObject({ reason: "PROJECT_IN_USE" });
  });

  test("keys are found, revoked once, and only by who administers them", async () => {
    const keys = new KeyStore(current());
    await expect(keys.create({ project: "main/no", role: "viewer", name: "", ttlMs: 0 })).rejects.toMatchObject({
      reason: "PROJECT_NOT_FOUND",
    });
    const { row, secret } = await keys.create({ project: "main", role: "builder", name: "ci", ttlMs: 1000 });
    expect(secret).toMatch(/^dsec_[a-z2-7]{12}_[A-Za-z0-9_-]{43}$/);
    expect((await keys.find([row.id]))[0]).toEqual(row);
    await expect(keys.revoke(row.id, () => false)).rejects.toMatchObject({ reason: "KEY_NOT_FOUND" });
    await expect(keys.revoke("no\u0000such", () => true)).rejects.toMatchObject({ reason: "KEY_NOT_FOUND" });
    await keys.revoke(row.id, () => true);
    const first = (await keys.find([row.id]))[0]?.revoked_at_ms;
    expect(first).toBeGreaterThan(0);
    await keys.revoke(row.id, () => true);
    expect((await keys.find([row.id]))[0]?.revoked_at_ms).toBe(first);
  });

  test("the last key that administers everything cannot be revoked, not even two by each other", async () => {
    const keys = new KeyStore(current());
    const admin = () => keys.create({ project: "main", role: "admin", name: "", ttlMs: 0 });
    const one = (await admin()).row.id;
    const two = (await admin()).row.id;
    // The first key, and what other tests made.
    for (const row of await keys.list("main")) {
      if (row.role === "admin" && row.id !== one && row.id !== two) await keys.revoke(row.id, () => true);
    }
    const ends = await Promise.allSettled([keys.revoke(one, () => true), keys.revoke(two, () => true)]);
    expect(ends.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    const refused = ends.find(({ status }) => status === "rejected") as PromiseRejectedResult;
    expect(refused.reason).toMatchObject({ reason: "LAST_ADMIN_KEY" });
    const expiring = (await keys.create({ project: "main", role: "admin", name: "", ttlMs: 1 })).row.id;
    await new Promise((resolve) => setTimeout(resolve, 5));
    await keys.revoke(expiring, () => true);
    await admin();
  });

  test("a name gets a version for each new content, also when several come at once", async () => {
    const layers = new LayerStore(current());
    const one = await layers.enter("main", "deb", content("a"));
    expect(one).toMatchObject({ existed: false, layer: { name: "main/deb", version: 1, dataBytes: 20n } });
    expect(one.layer.config?.labels).toEqual({ a: "b" });
    expect(await layers.enter("main", "deb", content("a"))).toMatchObject({ existed: true, layer: { version: 1 } });
    const more = await Promise.all(["b", "c", "d"].map((letter) => layers.enter("main", "deb", content(letter))));
    expect(more.map(({ layer }) => layer.version).sort()).toEqual([2, 3, 4]);
    await expect(layers.enter("main", "deb", content("e", LayerKind.TOOLKIT))).rejects.toMatchObject({
      reason: "LAYER_KIND_MISMATCH",
    });
    await expect(layers.enter("main/no", "deb", content("e"))).rejects.toMatchObject({ reason: "PROJECT_NOT_FOUND" });
  });

  test("content is dropped when the last name that holds it goes", async () => {
    const layers = new LayerStore(current());
    await layers.enter("main", "one", content("a"));
    await layers.enter("public", "two", content("a"));
    const one = await layers.versions(["main"], "one");
    const two = await layers.versions(["public"], "two");
    expect(await layers.heldOnlyBy(one)).toEqual([]);
    expect(await layers.heldOnlyBy([...one, ...two])).toEqual([digest("a")]);
    expect(await layers.remove(one)).toEqual([]);
    expect(await layers.remove(two)).toEqual([digest("a")]);
    await layers.restore(two);
    expect(await layers.versions(["public"], "two")).toEqual(two);
  });

  test("names are looked up from the project upwards, then in public, and what is not visible is not there", async () => {
    const layers = new LayerStore(current());
    const projects = new ProjectStore(current());
    const resolver = new LayerResolver(layers, 0);
    await projects.create("main/a", {});
    await projects.create("main/b", {});
    await layers.enter("public", "deb", content("1"));
    await layers.enter("main/b", "secret", content("9"));
    const get = async (text: string, principal: typeof main | typeof inA = inA, kind: "base" | "toolkit" = "base") =>
      (await resolver.resolve(principal, principal.project, kind, text)).layers.map(({ digest, name }) => [
        digest.slice(7, 8),
        name,
      ]);
    expect(await get("deb")).toEqual([["1", "public/deb@v1"]]);
    await layers.enter("main", "deb", content("2"));
    await layers.enter("main", "deb", content("3"));
    expect(await get("deb")).toEqual([["3", "main/deb@v2"]]);
    expect(await get("deb@v1")).toEqual([["2", "main/deb@v1"]]);
    expect(await get("public/deb")).toEqual([["1", "public/deb@v1"]]);
    await expect(get("deb@v3")).rejects.toMatchObject({ reason: "LAYER_NOT_FOUND" });
    expect(await get(digest("2"))).toEqual([["2", "main/deb@v1"]]);
    await expect(get(digest("9"))).rejects.toMatchObject({ reason: "LAYER_NOT_FOUND" });
    await expect(get("main/b/secret")).rejects.toMatchObject({ reason: "LAYER_NOT_FOUND" });
    expect(await get("main/b/secret", main)).toEqual([["9", "main/b/secret@v1"]]);
    await expect(get("deb", inA, "toolkit")).rejects.toMatchObject({ reason: "LAYER_KIND_MISMATCH" });
    const close = await get("debb").catch((error) => error);
    expect(close.message).toContain("main/deb");
    expect(close.metadata.close).toContain("public/deb");
    for (const bad of ["a\u0000b", "../x", "A", "a@3", "a@v0", "x".repeat(255), "", "a'; drop table keys"]) {
      await expect(get(bad)).rejects.toMatchObject({ reason: "INVALID_ARGUMENT" });
    }
  });

  test("lists come sorted, by kind and beginning, in pages without gaps", async () => {
    const layers = new LayerStore(current());
    for (const name of ["b", "a_1", "a-2", "c"]) await layers.enter("main", name, content("a"));
    await layers.enter("main", "b", content("b"));
    await layers.enter("public", "tool", content("c", LayerKind.TOOLKIT));
    const all = { projects: ["main", "public"], kinds: [], namePrefix: "", limit: 100 };
    const names = (await layers.list(all)).map((layer) => `${layer.name}@${layer.version}`);
    expect(names).toHaveLength(6);
    expect(names.filter((name) => name.startsWith("main/b@"))).toEqual(["main/b@2", "main/b@1"]);
    const paged: string[] = [];
    let after: { project: string; name: string; version: number } | undefined;
    for (;;) {
      const [layer] = await layers.list({ ...all, limit: 1, after });
      if (layer === undefined) break;
      paged.push(`${layer.name}@${layer.version}`);
      const slash = layer.name.lastIndexOf("/");
      after = { project: layer.name.slice(0, slash), name: layer.name.slice(slash + 1), version: layer.version };
    }
    expect(paged).toEqual(names);
    expect((await layers.list({ ...all, namePrefix: "a_" })).map((l) => l.name)).toEqual(["main/a_1"]);
    expect((await layers.list({ ...all, kinds: [LayerKind.TOOLKIT] })).map((l) => l.name)).toEqual(["public/tool"]);
  });
});
