// Views that answer one another: source, sandwich, the function under the pointer, the small timeline.
import type { Page } from "playwright-core";
import { beforeAll, expect, inject, test } from "vitest";
import type { Flamegraph, Functions } from "../src/api/types.ts";
import { formatBytes } from "../src/lib/format.ts";
import { readSearch } from "../src/lib/search-params.ts";
import { api, open, recordingOf, seriousFaults, settled, useBrowser } from "./browser.ts";

useBrowser();

const real = !inject("mock");
let shop = "";
beforeAll(async () => {
  if (real) shop = (await recordingOf("shop")).id;
});

const searchOf = (page: Page) => readSearch(new URL(page.url()).search);

test.runIf(real)("without an open file there is a list of them, with sums, and a way back to it", async () => {
  const page = await open(`/r/${shop}/source?metric=allocated`);
  await settled(page);
  const first = page.locator(".source-files tbody tr").first();
  await expect.poll(() => first.textContent()).toContain("shop.c");
  // What libraries allocate for functions of the file counts, too.
  const { rows } = await api<Functions>(`recordings/${shop}/functions?by=program&metric=allocated&limit=1000`);
  const flat = rows.filter((row) => row.file?.endsWith("shop.c")).reduce((sum, row) => sum + row.flat, 0);
  expect(await first.textContent()).toContain(formatBytes(flat));
  expect(await seriousFaults(page)).toEqual([]);
  await first.getByRole("link").click();
  await expect.poll(() => page.locator(".source-line").count()).toBeGreaterThan(5);
  await page.getByRole("button", { name: "All files" }).click();
  await expect.poll(() => first.textContent()).toContain("shop.c");
});

test.runIf(real)("a function's menu leads to its source; lines have their sums, and an editor is linked", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated`);
  await settled(page);
  await page.locator(".table-body [role=row]", { hasText: "import_batch" }).focus();
  await page.keyboard.press("Shift+F10");
  await page.getByRole("menuitem", { name: /^Source/ }).click();
  await settled(page);
  expect(searchOf(page).file).toMatch(/shop\.c$/);
  const functions = await api<Functions>(`recordings/${shop}/functions?metric=allocated&search=import_batch`);
  const line = page.locator(".source-line", { hasText: "rows[i] = touch(malloc(40000), 40000)" });
  await expect.poll(() => line.count()).toBe(1);
  const sums = await line
    .locator("[title*=' bytes,']")
    .evaluateAll((all) => all.map((one) => one.getAttribute("title")));
  expect(sums.map((text) => Number(text?.replace(/ bytes.*|,/g, "")))).toContain(functions.rows[0]?.flat);
  // The program's own folder is an allowed root; without text there would be no such line at all.
  await page.getByPlaceholder("vscode://file/%f:%l").fill("editor://open?file=%f&line=%l");
  await expect
    .poll(() => page.locator(".source-line a").first().getAttribute("href"))
    .toMatch(/^editor:\/\/open\?file=.*shop\.c&line=\d+$/);
  await page.reload();
  await settled(page);
  await expect.poll(() => line.count()).toBe(1);
  expect(await seriousFaults(page)).toEqual([]);
});

test.runIf(real)("a file outside of the allowed folders is refused in words", async () => {
  const page = await open(`/r/${shop}/source?file=${encodeURIComponent("/etc/passwd")}&metric=allocated`);
  await settled(page);
  expect(await page.locator("main.view").textContent()).not.toContain("root:");
  expect(await page.locator("main.view").textContent()).toContain("No backtrace of this recording");
});

test.runIf(real)("a sandwich: callers above, callees below, both the server's; it can be left by keys", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated&thread=2`);
  await settled(page);
  const fillIn = (part: string) => page.locator(`${part} .frame[data-function="format_line"]`).first();
  const fill = await fillIn(".flame-chart").getAttribute("data-fill");
  await page.locator(".flame-chart").focus();
  const name = async () => page.locator(".details-name").first().textContent();
  for (let i = 0; i < 12 && (await name()) !== "session"; i += 1) await page.keyboard.press("ArrowDown");
  expect(await name()).toBe("session");
  await page.keyboard.press("Shift+F10");
  await page.getByRole("menuitem", { name: /^Callers and callees/ }).press("Enter");
  await expect.poll(() => searchOf(page).sandwich).toMatch(/^session@.*shop\.c@shop$/);
  await settled(page);
  const whole = await api<Flamegraph>(
    `recordings/${shop}/flamegraph?metric=allocated&thread=2&show_from=%5Esession%24`,
  );
  const half = (side: string) => page.locator(`.sandwich-half[data-side=${side}]`);
  await expect.poll(() => half("callees").locator(".flame-chart .frame").count()).toBeGreaterThan(3);
  await expect.poll(() => half("callers").locator(".flame-chart .frame").count()).toBeGreaterThan(1);
  const total = await half("callees").locator(".details [title$='bytes']").last().getAttribute("title");
  expect(Number(total?.replace(/[^\d]/g, ""))).toBe(whole.total);
  expect(await half("callers").locator(".frame[data-written*='start_thread']").count()).toBeGreaterThan(0);
  expect(await half("callees").locator(".frame[data-written*='format_line']").count()).toBeGreaterThan(0);
  // Coloured as the whole graph is: shop is one module, and its graph is by file or function.
  expect(await fillIn("[data-side=callees]").getAttribute("data-fill")).toBe(fill);
  await half("callees").locator(".flame-chart").focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Shift+F10");
  await expect.poll(() => page.getByRole("menu").count()).toBe(1);
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  await expect.poll(() => searchOf(page).sandwich).not.toMatch(/^session@/);
  await page.goBack();
  await settled(page);
  expect(await seriousFaults(page)).toEqual([]);
  await page.getByRole("button", { name: "‹ The whole graph" }).press("Enter");
  await expect.poll(() => searchOf(page).sandwich).toBeUndefined();
});

test.runIf(real)("the function under the pointer is lit wherever else it is", async () => {
  const page = await open(`/r/${shop}/leaks?persite=1`);
  await settled(page);
  const row = page.locator(".table-body [role=row]", { hasText: "cache_insert" });
  await row.hover();
  await expect.poll(() => page.locator(".stack li[data-lit]").count()).toBe(1);
  await page.locator(".stack li", { hasText: "session" }).hover();
  // The row's stack goes through it.
  await expect.poll(() => row.getAttribute("data-lit")).toBe("true");
  await page.goto(page.url().replace(/\/leaks.*/, "/flamegraph?metric=allocated"));
  await settled(page);
  await page.locator(".flame-chart .frame[data-written*='start_thread']").first().hover({ force: true });
  await expect.poll(() => page.locator(".flame-chart .frame[data-lit]").count()).toBeGreaterThan(0);
  await page.mouse.move(5, 5);
  await expect.poll(() => page.locator(".flame-chart .frame[data-lit]").count()).toBe(0);
});

test.runIf(real)("a selected function has its time series in the timeline", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated&selected=cache_insert`);
  await settled(page);
  await expect.poll(() => page.locator(".timeline .track-name").first().textContent()).toContain("cache_insert");
});

test.runIf(real)("zoomed, the timeline has a small one of everything, whose frame can be dragged", async () => {
  const page = await open(`/r/${shop}/overview`);
  await settled(page);
  expect(await page.locator(".minimap").count()).toBe(0);
  await page.locator(".timeline-surface").focus();
  for (let i = 0; i < 4; i += 1) await page.keyboard.press("+");
  await expect.poll(() => page.locator(".minimap path").getAttribute("d")).toContain("H");
  const before = searchOf(page).shown;
  const box = await page.locator(".minimap rect").boundingBox();
  if (!box || !before) throw new Error("no frame");
  await page.mouse.move(box.x + box.width / 2, box.y + 8);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 2 + 120, box.y + 8, { steps: 5 });
  await page.mouse.up();
  await expect.poll(() => searchOf(page).shown?.from).toBeGreaterThan(before.from);
  const { shown } = searchOf(page);
  expect((shown?.to ?? 0) - (shown?.from ?? 0)).toBeCloseTo(before.to - before.from, -2);
});
