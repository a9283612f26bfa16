// Pictures of the guide: npm run guide. A command, not a test: it writes docs/guide/images.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: { include: ["e2e/guide.ts"], globalSetup: ["e2e/setup.ts"], testTimeout: 120_000, hookTimeout: 120_000 },
});
