// Unit and component tests.
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [react()],
  test: { include: ["tests/**/*.test.{ts,tsx}"], environment: "node", restoreMocks: true, testTimeout: 60_000 },
});
