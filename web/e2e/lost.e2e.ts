// A server that goes away under the page of a running program: what was there stays, and nothing false is said.
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { open, settled, useBrowser } from "./browser.ts";
import { serveOwn } from "./own-server.ts";

useBrowser();
const folder = inject("folder");
const recording = join(folder, "memory-lost.dat");
let server: Awaited<ReturnType<typeof serveOwn>> | undefined;
let program: ChildProcess | undefined;

beforeAll(() => {
  if (inject("mock")) return;
  // One of its own: another test ends the one that all see.
  const env = { ...process.env, LD_PRELOAD: join(folder, "libtracehound.so"), TRACEHOUND_OUTPUT: recording };
  program = spawn(join(folder, "steady"), { env, stdio: "ignore" });
});
afterAll(() => {
  server?.end();
  program?.kill("SIGKILL");
  for (const end of ["", ".live", ".idx"]) rmSync(`${recording}${end}`, { recursive: true, force: true });
});

test.skipIf(inject("mock"))("the overview of a running program keeps its answers when the server is lost", async () => {
  await expect.poll(() => existsSync(recording), { timeout: 10_000 }).toBe(true);
  // A second attempt needs another server: the first has lost its own.
  server?.end();
  server = await serveOwn([recording]);
  const page = await open("/", { server: server.url });
  await settled(page);
  const findings = page.locator(".findings");
  const holders = page.locator("section[aria-labelledby=holders] tbody tr");
  await expect.poll(() => page.locator(".timeline-surface .track-name, .track-name").count()).toBeGreaterThan(0);
  await expect.poll(() => holders.count()).toBeGreaterThan(0);
  await expect.poll(() => findings.textContent()).not.toContain("Looking");
  server?.end();
  await page.waitForSelector("text=/server does not (respond|answer)/i");
  // The next revisions were asked for in vain.
  await page.waitForTimeout(3000);
  expect(await findings.textContent()).not.toContain("Nothing stands out");
  expect(await holders.count()).toBeGreaterThan(0);
  expect(await page.locator(".track-name").count()).toBeGreaterThan(0);
});
