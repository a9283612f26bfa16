// End-to-end tests: a real browser, a running server.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["e2e/**/*.e2e.ts"],
    globalSetup: ["e2e/setup.ts"],
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // A busy machine may starve a browser once; what is broken fails again. When little works, it is the set-up.
    retry: 1,
    bail: 5,
  },
});
