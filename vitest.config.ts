import { defineConfig } from "vitest/config";

const shared = {
  // Hang-guards, no measurements: two cores are shared by everything.
  testTimeout: 60_000,
  hookTimeout: 120_000,
  pool: "forks",
  // Sources run as Node runs them; a test's own environment is left alone.
  env: { NODE_NO_WARNINGS: "1" },
} as const;

export default defineConfig({
  test: {
    maxWorkers: 2,
    projects: [
      { test: { ...shared, name: "parts", include: ["packages/*/test/**/*.test.ts", "bench/test/**/*.test.ts"] } },
      // The whole platform, on a base that is made once a checkout.
      {
        test: { ...shared, name: "whole", include: ["e2e/**/*.test.ts"], globalSetup: ["e2e/support/global-setup.ts"] },
      },
    ],
  },
});
