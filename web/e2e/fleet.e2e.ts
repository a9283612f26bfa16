// The fleet page in a browser: service, version, host, recording, and from there to the views of that recording.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { forgive, open, seriousFaults, settled, useBrowser } from "./browser.ts";

useBrowser();
const real = test.skipIf(inject("mock"));
let folder = "";
let url = "";
let server: ChildProcess | undefined;

/** A port that nothing listens on. */
const freePort = (): Promise<number> =>
  new Promise((found) => {
    const listener = createServer().listen(0, "127.0.0.1", () => {
      const address = listener.address();
      listener.close(() => found(typeof address === "object" && address ? address.port : 0));
    });
  });

beforeAll(async () => {
  if (inject("mock")) return;
  folder = mkdtempSync(join(tmpdir(), "fleet-e2e-"));
  const spool = join(folder, "spool");
  const store = `file://${join(folder, "store")}`;
  mkdirSync(spool);
  const program = join(folder, "shop");
  const source = resolve(import.meta.dirname, "../../tests/programs/planted.c");
  expect(spawnSync("gcc", ["-O1", "-g", source, "-o", program]).status).toBe(0);
  for (const [version, fault] of [
    ["1.4", "none"],
    ["1.4", "none"],
    ["1.5", "leak"],
  ]) {
    const env = {
      ...process.env,
      LD_PRELOAD: join(inject("folder"), "libtracehound.so"),
      TRACEHOUND_OUTPUT: join(spool, "%e-%p-%i.dat"),
      TRACEHOUND_LABELS: `service=shop,version=${version},host=node-7`,
    };
    expect(spawnSync(program, [fault ?? ""], { env }).status).toBe(0);
  }
  const collected = spawnSync(inject("heaptrace"), ["collect", "--once", "--spool", spool, "--store", store]);
  expect(collected.status, collected.stderr.toString()).toBe(0);
  const port = await freePort();
  server = spawn(inject("heaptrace"), ["fleet", "serve", store, "--port", `${port}`], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const out = server.stdout;
  await new Promise((said) => out?.once("data", said));
  url = `http://127.0.0.1:${port}`;
});

afterAll(() => {
  // In order, so that it ends the servers of recordings.
  server?.kill("SIGTERM");
  if (folder) rmSync(folder, { recursive: true, force: true });
});

for (const theme of ["light", "dark"] as const)
  real(`from a service to the views of one recording (${theme})`, async () => {
    const page = await open("/", { server: url, theme });
    const rows = () => page.locator("main table").first().locator("tbody tr");
    await expect.poll(() => rows().count()).toBe(1);
    expect(await rows().first().textContent()).toContain("shop");
    expect(await seriousFaults(page)).toEqual([]);
    // What leaks is on the first screen, with its version.
    const growing = page.locator("h2:has-text('Stacks that grow') + .wide tbody tr");
    expect(await growing.first().textContent()).toMatch(/session_open.*shop.*1\.5.*1 of 1/);
    await page.getByRole("link", { name: "shop" }).first().click();
    await expect.poll(() => rows().count()).toBe(2);
    expect(await seriousFaults(page)).toEqual([]);
    await page.getByRole("link", { name: "1.5" }).first().click();
    await page.getByRole("link", { name: "node-7" }).click();
    await expect.poll(() => rows().count()).toBe(1);
    expect(await seriousFaults(page)).toEqual([]);
    const nav = page.getByRole("navigation", { name: "Place" });
    expect(await nav.textContent()).toContain("All services › shop › 1.5 › node-7");
    await rows().first().getByRole("link").click();
    await page.waitForURL((to) => to.origin !== url);
    // The recording has a server of its own, which is another address.
    forgive(page, /^asked another host: http:\/\/127\.0\.0\.1:/);
    await page.waitForSelector("main.view", { timeout: 60_000 });
    await settled(page);
    expect(await page.title()).toContain("shop");
    forgive(page, /^asked another host: http:\/\/127\.0\.0\.1:/);
  });

real("the fleet page fits a narrow window", async () => {
  const page = await open("/?service=shop", { server: url, width: 390 });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  expect(wide).toBeLessThanOrEqual(390);
});
