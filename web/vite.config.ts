// Builds the page; serves it for development with the mock API, or with a real server behind it (HEAPTRACE_URL).
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";
import { answer } from "./tests/mock-api/handler.ts";

const server = process.env["HEAPTRACE_URL"];

/** Answers `/api/` from synthetic recordings; development and tests only, never part of the build. */
function mockApi(): Plugin {
  return {
    name: "mock-api",
    configureServer: (dev) => void dev.middlewares.use(answer),
    configurePreviewServer: (preview) => void preview.middlewares.use(answer),
  };
}

const proxy = server ? { "/api": { target: server, headers: { host: new URL(server).host } } } : undefined;

/** What the real server sends: nothing inline, nothing from elsewhere. */
const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** Reports are one file: the same page as one script and one style sheet, dist/report/page.js and page.css. */
const report = {
  outDir: "dist/report",
  cssCodeSplit: false,
  copyPublicDir: false,
  rolldownOptions: {
    input: "src/main.tsx",
    output: { codeSplitting: false, entryFileNames: "page.js", assetFileNames: "page[extname]" },
  },
};

export default defineConfig(({ mode }) => ({
  plugins: [react(), ...(server ? [] : [mockApi()])],
  build: {
    target: "es2022",
    sourcemap: false,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 900,
    ...(mode === "report" ? report : {}),
  },
  server: { host: "127.0.0.1", port: 5173, ...(proxy ? { proxy } : {}) },
  preview: {
    host: "127.0.0.1",
    port: 4173,
    headers: { "content-security-policy": policy },
    ...(proxy ? { proxy } : {}),
  },
}));
