import { readFileSync } from "node:fs";
import type { Principal } from "@dsec/iam";
import { importJWK, type JWK, SignJWT } from "jose";

const lifeMs = 300_000;
const renewMs = 60_000;
const maxTokens = 100_000;

/** Signs who makes a call, for edges: one token a minute and key. */
export class PrincipalTokens {
  readonly #key: Awaited<ReturnType<typeof importJWK>>;
  readonly #tokens = new Map<string, { token: string; madeAt: number }>();

  private constructor(key: Awaited<ReturnType<typeof importJWK>>) {
    this.#key = key;
  }

  /** @param file a JWK with an Ed25519 private key */
  static async load(file: string): Promise<PrincipalTokens> {
    return new PrincipalTokens(await importJWK(JSON.parse(readFileSync(file, "utf8")) as JWK, "EdDSA"));
  }

  /** At once where one is cached. */
  token(principal: Principal): string | Promise<string> {
    const cached = this.#tokens.get(principal.keyId);
    const now = Date.now();
    if (cached !== undefined && now - cached.madeAt < renewMs && now >= cached.madeAt) return cached.token;
    return this.#sign(principal, now);
  }

  async #sign(principal: Principal, now: number): Promise<string> {
    const seconds = Math.floor(now / 1000);
    const token = await new SignJWT({ project: principal.project, role: principal.role })
      .setProtectedHeader({ alg: "EdDSA" })
      .setSubject(principal.keyId)
      .setIssuedAt(seconds)
      .setExpirationTime(seconds + lifeMs / 1000)
      .sign(this.#key);
    if (this.#tokens.size >= maxTokens) this.#tokens.clear();
    this.#tokens.set(principal.keyId, { token, madeAt: now });
    return token;
  }
}
