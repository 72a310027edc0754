import { open, rename, unlink } from "node:fs/promises";
import { randomBase32 } from "@dsec/api";
import { type Database, query } from "./database.ts";
import { makeKey } from "./keys.ts";
import { publicProject, rootProject } from "./paths.ts";

/**
 * Of an empty database: makes the root project, `public` and the first key, an admin of all, and writes that key to the
 * file, 0600. Of several apiservers that start at once, one does so. Returns whether it was this one.
 */
export async function firstStart(db: Database, firstKeyFile: string): Promise<boolean> {
  const now = Date.now();
  return await query(() =>
    db.transaction().execute(async (tx) => {
      const made = await tx
        .insertInto("projects")
        .values([rootProject, publicProject].map((path) => ({ path, created_at_ms: now, ...noQuota })))
        .onConflict((c) => c.column("path").doNothing())
        .returning("path")
        .execute();
      if (!made.some((project) => project.path === rootProject)) return false;
      const { row, secret } = makeKey({ project: rootProject, role: "admin", name: "first key", ttlMs: 0 }, now);
      await tx.insertInto("keys").values(row).execute();
      // Before the commit: a key that is in the database is always in the file too.
      await writePrivate(firstKeyFile, `${secret}\n`);
      return true;
    }),
  );
}

const noQuota = { quota_sandboxes: null, quota_cpu_cores: null, quota_memory_mb: null };

async function writePrivate(path: string, text: string): Promise<void> {
  const part = `${path}.${randomBase32(8)}.part`;
  const file = await open(part, "wx", 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } catch (error) {
    await unlink(part).catch(() => {});
    throw error;
  } finally {
    await file.close();
  }
  await rename(part, path);
}
