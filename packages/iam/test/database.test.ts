import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "kysely";
import { expect, test } from "vitest";
import { openDatabase } from "../src/database.ts";
import { firstStart } from "../src/first-start.ts";
import { hashKey, KeyStore, keyIdOf } from "../src/keys.ts";
import { onEachDatabase } from "./support/databases.ts";

onEachDatabase("the database", (current, url) => {
  test("migrations run twice, and numbers of 64 bits come back as numbers", async () => {
    const settings = url();
    if (settings !== undefined) {
      const both = await Promise.all([openDatabase({ url: settings }), openDatabase({ url: settings })]);
      for (const db of both) await db.destroy();
    }
    const { rows } = await sql<{ n: number }>`select 9007199254740991::bigint as n`.execute(current());
    expect(rows[0]?.n).toBe(9007199254740991);
  });

  test("the first start makes the roots and one admin key, 0600, and the second makes nothing", async () => {
    const dir = mkdtempSync(join(tmpdir(), "dsec-iam-"));
    const file = join(dir, "key");
    const made = await Promise.all([
      firstStart(current(), file),
      firstStart(current(), file),
      firstStart(current(), file),
    ]);
    expect(made.filter(Boolean)).toHaveLength(1);
    const secret = readFileSync(file, "utf8").trim();
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const keys = await new KeyStore(current()).list("main");
    expect(keys).toHaveLength(1);
    expect(keys[0]).toMatchObject({ id: keyIdOf(secret), hash: hashKey(secret), role: "admin", project: "main" });
    expect(JSON.stringify(keys)).not.toContain(secret);
    const paths = await current().selectFrom("projects").select("path").orderBy("path").execute();
    expect(paths.map((p) => p.path)).toEqual(["main", "public"]);
    rmSync(dir, { recursive: true });
  });

  test("a first start that cannot write its file leaves an empty database behind", async () => {
    await expect(firstStart(current(), "/nowhere/at/all/key")).rejects.toThrow();
    expect(await current().selectFrom("projects").selectAll().execute()).toEqual([]);
  });
});

test("a server that is not there is DATABASE_UNAVAILABLE", async () => {
  const opened = openDatabase({ url: "postgres://dsec@/postgres?host=%2Fnowhere" });
  await expect(opened).rejects.toMatchObject({ reason: "DATABASE_UNAVAILABLE" });
});
