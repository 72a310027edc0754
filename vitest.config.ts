import { defineConfig } from "vitest/config";

const alone = "packages/cli/test/launcher/bare-debian.test.ts";

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
      {
        test: {
          ...shared,
          name: "parts",
          include: ["packages/*/test/**/*.test.ts", "bench/test/**/*.test.ts"],
          exclude: [alone],
          sequence: { groupOrder: 0 },
        },
      },
      // The whole platform, on a base that is made once a checkout.
      {
        test: {
          ...shared,
          name: "whole",
          include: ["e2e/**/*.test.ts"],
          globalSetup: ["e2e/support/global-setup.ts"],
          sequence: { groupOrder: 0 },
        },
      },
      // A whole suite of its own, which takes what others do meanwhile for left behind: after them.
      { test: { ...shared, name: "alone", include: [alone], sequence: { groupOrder: 1 } } },
    ],
  },
});
