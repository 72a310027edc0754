// Keys in memory: a call costs no query, a revoked key ends within `freshMs` plus one query, and with the database away
// keys that are known go on for ten minutes.
import { DsecError } from "@dsec/api";
import { hashKey, type KeyStore, keyIdOf, sameHash } from "./keys.ts";
import { type Principal, roleFromText } from "./roles.ts";
import type { KeyRow } from "./schema.ts";

export interface AuthenticatorOptions {
  /** Milliseconds after which a key is looked at again. */
  readonly freshMs?: number;
  /** Milliseconds for which a known key works while the database is away. */
  readonly staleMs?: number;
  readonly now?: () => number;
}

interface Entry {
  readonly row: KeyRow;
  readonly principal: Principal;
  /** When the database last said that the key is good. */
  checkedAt: number;
  usedAt: number;
}

const unknownKeyMs = 1_000;
const maxUnknown = 10_000;
const maxKnown = 100_000;
/** After a failed query, calls go on without asking for this long. */
const retryMs = 500;

export class Authenticator {
  readonly #keys: Pick<KeyStore, "find">;
  readonly #freshMs: number;
  readonly #staleMs: number;
  readonly #now: () => number;
  /** By the secret itself: a call costs one look-up and no hash. */
  readonly #known = new Map<string, Entry>();
  /** Secrets that the database did not know, with the time. */
  readonly #unknown = new Map<string, number>();
  readonly #pending = new Map<string, Promise<Entry>>();
  #failedAt = Number.NEGATIVE_INFINITY;

  constructor(keys: Pick<KeyStore, "find">, options: AuthenticatorOptions = {}) {
    this.#keys = keys;
    this.#freshMs = options.freshMs ?? 3_000;
    this.#staleMs = options.staleMs ?? 600_000;
    this.#now = options.now ?? Date.now;
  }

  /** At once for a key that was checked lately, else a promise. Throws or rejects UNAUTHENTICATED, DATABASE_UNAVAILABLE. */
  authenticate(secret: string): Principal | Promise<Principal> {
    const now = this.#now();
    const entry = this.#known.get(secret);
    if (entry !== undefined) {
      entry.usedAt = now;
      this.#checkExpiry(entry, now);
      if (now - entry.checkedAt < this.#freshMs || this.#mayGoStale(entry, now)) return entry.principal;
    } else if (now - (this.#unknown.get(secret) ?? Number.NEGATIVE_INFINITY) < unknownKeyMs) {
      throw unauthenticated("the key is unknown, expired or revoked");
    }
    return this.#ask(secret).then((found) => found.principal);
  }

  /**
   * Asks the database for all keys used since the last time, in one query. Returns the IDs of keys that work no more.
   * Never rejects: with the database away only those beyond ten minutes are returned.
   */
  async revalidate(): Promise<string[]> {
    const now = this.#now();
    for (const [secret, entry] of this.#known) {
      if (now - entry.usedAt > this.#staleMs) this.#known.delete(secret);
    }
    for (const [secret, at] of this.#unknown) if (now - at > unknownKeyMs) this.#unknown.delete(secret);
    const entries = [...this.#known];
    if (entries.length === 0) return [];
    const ended: string[] = [];
    try {
      const rows = await this.#keys.find(entries.map(([, entry]) => entry.row.id));
      this.#failedAt = Number.NEGATIVE_INFINITY;
      const byId = new Map(rows.map((row) => [row.id, row]));
      for (const [secret, entry] of entries) {
        if (this.#isGood(byId.get(entry.row.id), entry.row.hash)) entry.checkedAt = now;
        else {
          this.#known.delete(secret);
          ended.push(entry.row.id);
        }
      }
    } catch {
      this.#failedAt = this.#now();
      for (const [secret, entry] of entries) {
        if (now - entry.checkedAt < this.#staleMs && !this.#isExpired(entry.row)) continue;
        this.#known.delete(secret);
        ended.push(entry.row.id);
      }
    }
    return ended;
  }

  /** A call with this key is still open: it is revalidated though no new call comes. */
  touch(secret: string): void {
    const entry = this.#known.get(secret);
    if (entry !== undefined) entry.usedAt = this.#now();
  }

  #ask(secret: string): Promise<Entry> {
    const running = this.#pending.get(secret);
    if (running !== undefined) return running;
    const asked = this.#lookUp(secret).finally(() => this.#pending.delete(secret));
    this.#pending.set(secret, asked);
    return asked;
  }

  async #lookUp(secret: string): Promise<Entry> {
    const id = keyIdOf(secret);
    if (id === undefined) throw unauthenticated("what was sent is not a key; keys look like dsec_<id>_<secret>");
    const before = this.#known.get(secret);
    let row: KeyRow | undefined;
    try {
      row = (await this.#keys.find([id]))[0];
    } catch (error) {
      this.#failedAt = this.#now();
      if (before !== undefined && this.#now() - before.checkedAt < this.#staleMs) return before;
      throw error;
    }
    this.#failedAt = Number.NEGATIVE_INFINITY;
    const now = this.#now();
    if (!this.#isGood(row, hashKey(secret))) {
      this.#known.delete(secret);
      if (this.#unknown.size < maxUnknown) this.#unknown.set(secret, now);
      throw unauthenticated("the key is unknown, expired or revoked");
    }
    const principal = { keyId: row.id, project: row.project, role: roleFromText(row.role) };
    const entry: Entry = { row, principal: before?.principal ?? principal, checkedAt: now, usedAt: now };
    if (this.#known.size < maxKnown) this.#known.set(secret, entry);
    return entry;
  }

  #isGood(row: KeyRow | undefined, hash: string): row is KeyRow {
    return row !== undefined && sameHash(row.hash, hash) && row.revoked_at_ms === null && !this.#isExpired(row);
  }

  #isExpired(row: KeyRow): boolean {
    return row.expires_at_ms !== null && row.expires_at_ms <= this.#now();
  }

  #checkExpiry(entry: Entry, now: number): void {
    if (entry.row.expires_at_ms === null || entry.row.expires_at_ms > now) return;
    throw unauthenticated("the key has expired");
  }

  #mayGoStale(entry: Entry, now: number): boolean {
    return now - this.#failedAt < retryMs && now - entry.checkedAt < this.#staleMs;
  }
}

function unauthenticated(message: string): DsecError {
  return new DsecError("UNAUTHENTICATED", message);
}
