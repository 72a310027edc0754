/** Calls under way, by key, so that those of a revoked key can be cut. */
export class OpenCalls {
  readonly #byKey = new Map<string, Set<OpenCall>>();

  add(keyId: string, call: OpenCall): void {
    const calls = this.#byKey.get(keyId);
    if (calls === undefined) this.#byKey.set(keyId, new Set([call]));
    else calls.add(call);
  }

  delete(keyId: string, call: OpenCall): void {
    const calls = this.#byKey.get(keyId);
    if (calls?.delete(call) && calls.size === 0) this.#byKey.delete(keyId);
  }

  /** Ends every call of the key. */
  cut(keyId: string): void {
    for (const call of this.#byKey.get(keyId) ?? []) call.cut();
  }

  /** One secret for each key that has calls open. */
  *secrets(): Iterable<string> {
    for (const calls of this.#byKey.values())
      for (const call of calls) {
        yield call.secret;
        break;
      }
  }

  get size(): number {
    let size = 0;
    for (const calls of this.#byKey.values()) size += calls.size;
    return size;
  }
}

export interface OpenCall {
  readonly secret: string;
  cut(): void;
}
