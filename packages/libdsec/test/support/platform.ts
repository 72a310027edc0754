// The whole platform with a small Debian base named "base": what `client` talks to is what callers get.
import { afterAll, beforeAll } from "vitest";
import { importBase, makeBaseTar } from "../../../../e2e/support/environment.ts";
import { Platform, type PlatformOptions } from "../../../../e2e/support/platform.ts";
import type { DSecClient, Sandbox } from "../../src/index.ts";

export interface OnPlatform {
  readonly platform: Platform;
  readonly client: DSecClient;
  /** One sandbox of the base that the file's tests share. */
  readonly sandbox: Sandbox;
}

/** Starts it before the file's tests and ends it after them. */
export function onPlatform(options: PlatformOptions = {}): OnPlatform {
  let platform: Platform | undefined;
  let sandbox: Sandbox | undefined;
  const self = {
    get platform() {
      if (!platform) throw new Error("the platform is not up");
      return platform;
    },
    client: undefined as unknown as DSecClient,
    get sandbox() {
      if (!sandbox) throw new Error("the sandbox is not there");
      return sandbox;
    },
  };
  beforeAll(async () => {
    await makeBaseTar();
    platform = await Platform.start(options);
    self.client = platform.client() as DSecClient;
    await importBase(self.client);
    sandbox = await self.client.runContainer({ containerImage: "base" });
  }, 300_000);
  afterAll(() => platform?.[Symbol.asyncDispose]());
  return self;
}
