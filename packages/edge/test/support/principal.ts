// Tokens as the apiserver signs them.
import { writeFileSync } from "node:fs";
import { exportJWK, generateKeyPair, SignJWT } from "jose";

export class Signer {
  private readonly key: Awaited<ReturnType<typeof generateKeyPair>>["privateKey"];
  private constructor(key: Signer["key"]) {
    this.key = key;
  }

  /** Makes a pair and writes the public key, as JWK. */
  static async make(publicKeyFile: string): Promise<Signer> {
    const { publicKey, privateKey } = await generateKeyPair("EdDSA", { crv: "Ed25519", extractable: true });
    writeFileSync(publicKeyFile, JSON.stringify(await exportJWK(publicKey)));
    return new Signer(privateKey);
  }

  token(project = "root", role = "admin", seconds = 48 * 3600): Promise<string> {
    const now = Math.floor(Date.now() / 1000);
    return new SignJWT({ project, role })
      .setProtectedHeader({ alg: "EdDSA" })
      .setSubject("testkey")
      .setIssuedAt(now)
      .setExpirationTime(now + seconds)
      .sign(this.key);
  }
}
