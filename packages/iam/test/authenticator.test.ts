import { DsecError } from "@dsec/api";
import { beforeEach, expect, test } from "vitest";
import { Authenticator } from "../src/authenticator.ts";
import { makeKey } from "../src/keys.ts";
import type { KeyRow } from "../src/schema.ts";

let now: number;
let rows: Map<string, KeyRow>;
let asked: number;
let away: boolean;
let authenticator: Authenticator;

beforeEach(() => {
  now = 1_000_000;
  rows = new Map();
  asked = 0;
  away = false;
  const find = async (ids: readonly string[]) => {
    asked++;
    if (away) throw new DsecError("DATABASE_UNAVAILABLE", "away");
    return ids.flatMap((id) => rows.get(id) ?? []);
  };
  authenticator = new Authenticator({ find }, { now: () => now });
});

function addKey(ttlMs = 0): { secret: string; row: KeyRow } {
  const key = makeKey({ project: "main", role: "developer", name: "", ttlMs }, now);
  rows.set(key.row.id, key.row);
  return key;
}

const ask = async (secret: string) => authenticator.authenticate(secret);

test("a known key costs no query for three seconds, and is answered at once", async () => {
  const { secret, row } = addKey();
  expect(await ask(secret)).toEqual({ keyId: row.id, project: "main", role: "developer" });
  now += 2_999;
  expect(authenticator.authenticate(secret)).not.toBeInstanceOf(Promise);
  expect(asked).toBe(1);
  now += 1;
  await ask(secret);
  expect(asked).toBe(2);
});

test("many calls with a key that is not known yet make one query", async () => {
  const { secret } = addKey();
  await Promise.all(Array.from({ length: 20 }, () => ask(secret)));
  expect(asked).toBe(1);
});

test("a wrong secret for a known ID, no key, a revoked and an expired one are refused", async () => {
  const { secret, row } = addKey();
  const wrong = `${secret.slice(0, -4)}AAAA`;
  for (const bad of [
    wrong,
    "",
    "dsec_x",
    `dsec_${"a".repeat(12)}_${"b".repeat(43)}`,
    `${secret} `,
    `${secret}\u0000`,
  ]) {
    await expect(ask(bad)).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
  }
  rows.set(row.id, { ...row, revoked_at_ms: now });
  await expect(ask(secret)).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
  const short = addKey(5_000);
  await ask(short.secret);
  now += 5_000;
  await expect(ask(short.secret)).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
});

test("a revoked key is reported by the next look and works no more; others go on", async () => {
  const [gone, stays] = [addKey(), addKey()];
  await ask(gone.secret);
  await ask(stays.secret);
  rows.set(gone.row.id, { ...gone.row, revoked_at_ms: now });
  now += 1_500;
  expect(await authenticator.revalidate()).toEqual([gone.row.id]);
  await expect(ask(gone.secret)).rejects.toMatchObject({ reason: "UNAUTHENTICATED" });
  await ask(stays.secret);
});

test("with the database away known keys go on for ten minutes, and others do not", async () => {
  const [known, other] = [addKey(), addKey()];
  await ask(known.secret);
  away = true;
  for (const minutes of [1, 5, 9.9]) {
    now = 1_000_000 + minutes * 60_000;
    expect(await authenticator.revalidate()).toEqual([]);
    await ask(known.secret);
  }
  await expect(ask(other.secret)).rejects.toMatchObject({ reason: "DATABASE_UNAVAILABLE" });
  now = 1_000_000 + 600_000;
  expect(await authenticator.revalidate()).toEqual([known.row.id]);
  await expect(ask(known.secret)).rejects.toMatchObject({ reason: "DATABASE_UNAVAILABLE" });
  away = false;
  await ask(known.secret);
});

test("with the database away calls do not wait for it each", async () => {
  const { secret } = addKey();
  await ask(secret);
  away = true;
  now += 4_000;
  await ask(secret);
  const before = asked;
  for (let i = 0; i < 50; i++) await ask(secret);
  expect(asked).toBe(before);
});
