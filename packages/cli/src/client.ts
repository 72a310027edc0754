// The library, loaded when a command needs it.
import type { DSecClient } from "@dsec/libdsec";

export async function withClient<T>(work: (client: DSecClient) => Promise<T>): Promise<T> {
  const { DSecClient } = await import("@dsec/libdsec");
  await using client = new DSecClient();
  return await work(client);
}
