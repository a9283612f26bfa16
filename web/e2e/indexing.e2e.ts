// Indexing on the page: it can be cancelled, leaves nothing behind then, and can be started again.
import { spawnSync } from "node:child_process";
import { existsSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { open, settled, useBrowser } from "./browser.ts";
import { serveOwn } from "./own-server.ts";

useBrowser();
const real = test.skipIf(inject("mock"));
const folder = inject("folder");
const recording = join(folder, "memory-busy.dat");
let server: Awaited<ReturnType<typeof serveOwn>> | undefined;

beforeAll(async () => {
  if (inject("mock")) return;
  const program = join(folder, "busy");
  const source = resolve(import.meta.dirname, "programs/busy.c");
  expect(spawnSync("gcc", ["-O1", source, "-o", program]).status).toBe(0);
  const env = { ...process.env, LD_PRELOAD: join(folder, "libtracehound.so"), TRACEHOUND_OUTPUT: recording };
  expect(spawnSync(program, [], { env }).status).toBe(0);
  server = await serveOwn([recording]);
});

afterAll(() => {
  server?.end();
  for (const path of [recording, `${recording}.idx`, join(folder, "busy")])
    rmSync(path, { recursive: true, force: true });
});

real("indexing is cancelled by a button, nothing of it stays, and another button starts it again", async () => {
  const page = await open("/", { server: server?.url });
  await page.getByRole("button", { name: "Cancel indexing" }).click();
  await page.waitForSelector("text=Indexing was cancelled");
  expect(existsSync(`${recording}.idx`)).toBe(false);
  const list = (await (await fetch(`${server?.url}/api/v1/recordings`)).json()) as { recordings: { state: string }[] };
  expect(list.recordings[0]?.state).toBe("cancelled");
  expect((await fetch(`${server?.url}/api/v1/recordings/r1/leaks`)).status).toBe(409);
  // A reload finds the same state.
  await page.reload();
  await page.getByRole("button", { name: "Index it" }).click();
  await page.waitForSelector("main.view", { timeout: 60_000 });
  await settled(page);
  await expect.poll(() => page.locator("[data-fact=allocations]").textContent()).toContain("8.0");
  expect(existsSync(join(`${recording}.idx`, "index.json"))).toBe(true);
  // There is nothing to cancel any more.
  expect((await fetch(`${server?.url}/api/v1/recordings/r1/cancel_indexing`, { method: "POST" })).status).toBe(409);
});

real("a file that another recording has replaced is said, and opened by a button", async () => {
  const page = await open("/", { server: server?.url });
  await settled(page);
  const banner = page.getByRole("complementary", { name: "The file of this recording" });
  expect(await banner.count()).toBe(0);
  const before = await page.locator("[data-fact=allocations]").textContent();
  const source = resolve(import.meta.dirname, "programs/busy.c");
  const env = { ...process.env, LD_PRELOAD: join(folder, "libtracehound.so"), TRACEHOUND_OUTPUT: recording };
  // The program that is recorded is the compiler's driver this time.
  expect(spawnSync("gcc", ["-O1", source, "-o", join(folder, "busy")], { env }).status).toBe(0);
  // Somebody comes back to the page.
  await page.evaluate(() => window.dispatchEvent(new Event("focus")));
  await banner.getByText("is another file than the one that was opened").waitFor();
  expect(await page.locator("[data-fact=allocations]").textContent()).toBe(before);
  await banner.getByRole("button", { name: "Open the new file" }).click();
  // It is indexed first, and a busy machine takes its time for that.
  await expect.poll(() => page.locator("[data-fact=allocations]").textContent(), { timeout: 20_000 }).not.toBe(before);
  await settled(page);
  expect(await banner.count()).toBe(0);
  rmSync(recording);
  await page.evaluate(() => window.dispatchEvent(new Event("focus")));
  await banner.getByText("was removed since it was opened").waitFor();
});
