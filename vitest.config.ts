import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["packages/*/test/**/*.test.ts", "bench/test/**/*.test.ts"],
    // Hang-guards, no measurements: two cores are shared by everything.
    testTimeout: 60_000,
    hookTimeout: 120_000,
    pool: "forks",
    maxWorkers: 2,
    // Sources run as Node runs them; a test's own environment is left alone.
    env: { NODE_NO_WARNINGS: "1" },
  },
});
