// Reports: one HTML file, opened from the disk in a browser without a network.
import { spawnSync } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { beforeAll, expect, inject, test } from "vitest";
import type { Flamegraph, Info, Leaks, Memory } from "../src/api/types.ts";
import { api, open, openFile, recordingOf, seriousFaults, settled, useBrowser } from "./browser.ts";

useBrowser();

const SHOWN = [
  "overview",
  "flamegraph",
  "calltree",
  "functions",
  "sites",
  "leaks",
  "lifetimes",
  "threads",
  "recording",
] as const;

let file = "";
let shop = "";
beforeAll(async () => {
  if (inject("mock")) return;
  shop = (await recordingOf("shop")).id;
  file = join(inject("folder"), "shop.html");
  report(["memory-shop.dat", "-o", file]);
});

function report(words: string[]): string {
  const result = spawnSync(inject("heaptrace"), ["report", ...words], { cwd: inject("folder"), encoding: "utf8" });
  if (result.status !== 0) throw new Error(`heaptrace report ${words.join(" ")}: ${result.stderr}`);
  return result.stderr;
}

const goTo = async (page: Page, view: string) => {
  await page.evaluate((to) => {
    window.location.hash = `#/r/r1/${to}`;
  }, view);
  await settled(page);
};

test.skipIf(inject("mock"))("every view of it opens offline, and axe finds nothing serious", async () => {
  for (const theme of ["light", "dark"] as const) {
    const page = await openFile(file, theme);
    await settled(page);
    for (const view of SHOWN) {
      await goTo(page, view);
      expect(await page.locator("main.view").getAttribute("data-view")).toBe(view);
      // The view has the room, not the bars above it.
      for (const bar of await page.locator(".filter-bar, .view-bar").all()) {
        expect((await bar.boundingBox())?.height ?? 0, `a bar of ${view}`).toBeLessThan(120);
      }
      expect((await page.locator("main.view").boundingBox())?.height, view).toBeGreaterThan(350);
      expect(await page.getByRole("alert").count(), view).toBe(0);
      await expect
        .poll(() => page.locator(".flame-chart .frame, .table-body [role=row], .fact, .heat-cell, table tr").count(), {
          message: view,
        })
        .toBeGreaterThan(1);
      expect(await seriousFaults(page), `${view}, ${theme}`).toEqual([]);
    }
  }
});

test.skipIf(inject("mock"))("its figures are the server's", async () => {
  const info = await api<Info>(`recordings/${shop}`);
  const leaks = await api<Leaks>(`recordings/${shop}/leaks?builtin_suppressions=true`);
  const page = await openFile(file);
  await settled(page);
  expect(await page.locator("[data-fact=allocations] .fact-value").getAttribute("title")).toContain(
    info.allocations.count.toLocaleString("en-US"),
  );
  await goTo(page, "leaks");
  expect(Number(await page.locator("[data-testid=leaked] [data-exact]").getAttribute("data-exact"))).toBe(
    leaks.leaked.bytes,
  );
});

test.skipIf(inject("mock"))("zoom, back, metric, search and sorting work without a server", async () => {
  const page = await openFile(file);
  await settled(page);
  await page.getByRole("link", { name: "Flame graph" }).click();
  await settled(page);
  await page.getByText("Allocated", { exact: true }).click();
  await settled(page);
  const frames = page.locator(".flame-chart .frame");
  const before = await frames.count();
  expect(before).toBeGreaterThan(10);
  await page.locator(".flame-chart").focus();
  for (const key of ["ArrowDown", "ArrowDown", "Enter"]) await page.keyboard.press(key);
  await expect.poll(() => page.url()).toContain("root=");
  await settled(page);
  expect(await page.locator(".ancestors button").count()).toBeGreaterThan(0);
  await page.goBack();
  await settled(page);
  await expect.poll(() => frames.count()).toBe(before);
  await page.locator("input[type=search]").fill("cache_insert");
  await expect.poll(() => page.locator(".flame-chart .frame[data-match]").count()).toBeGreaterThan(0);
  await page.getByRole("link", { name: "Functions" }).click();
  await settled(page);
  await expect.poll(() => page.locator(".table-body [role=row]").count()).toBe(1);
  await page.locator("input[type=search]").fill("");
  await expect.poll(() => page.locator(".table-body [role=row]").count()).toBeGreaterThan(3);
  await page.getByRole("button", { name: "Cum", exact: true }).click();
  await settled(page);
  await page.reload();
  await settled(page);
  expect(page.url()).toContain("sort=cum");
});

test.skipIf(inject("mock"))("what only a server can answer is said, not shown wrongly", async () => {
  const page = await openFile(file);
  await settled(page);
  expect(await page.locator(".tabs a", { hasText: "Allocations" }).count()).toBe(0);
  await page.locator(".report-bar .term").focus();
  await expect
    .poll(() => page.getByRole("tooltip").textContent())
    .toContain("single blocks, comparisons, source files");
  await goTo(page, "functions?focus=main");
  await expect.poll(() => page.locator("main").textContent()).toContain("one window and one filter only");
});

test.skipIf(inject("mock"))("where resident memory was is in it, the parts make up the whole", async () => {
  const info = await api<Info>(`recordings/${shop}`);
  const memory = await api<Memory>(`recordings/${shop}/memory?at=${info.peak_rss?.at_ns}`);
  const page = await openFile(file);
  await settled(page);
  const bytes = async (selector: string) =>
    page
      .locator(`[data-panel=memory] ${selector} td.numeric[title]`)
      .evaluateAll((cells) => cells.map((cell) => Number(cell.getAttribute("title")?.replace(/[^-\d]/g, ""))));
  await expect.poll(() => bytes("tr[data-part=rss]")).toEqual([memory.rss_bytes]);
  const parts = await bytes(".memory-parts tr[data-part]:not([data-part=rss])");
  expect(parts.reduce((all, part) => all + part, 0)).toBe(memory.rss_bytes);
  // So are its history, the pins and the layers of live memory.
  await expect.poll(() => page.locator("[data-panel=layers] tr[data-layer]").count()).toBeGreaterThan(1);
  await goTo(page, "memory");
  await expect.poll(() => page.locator(".memory-view .stacked canvas").count()).toBe(1);
  await expect.poll(() => page.locator("[data-panel=replay]").textContent()).toContain("Nothing has been replayed yet");
  await goTo(page, "pins?pins=thread");
  await expect.poll(() => page.locator(".table-body [role=row]").count()).toBeGreaterThan(0);
});

test.skipIf(inject("mock"))("a sandwich without a server has the server's sums", async () => {
  const page = await openFile(file);
  await settled(page);
  await goTo(page, "flamegraph?metric=allocated&sandwich=session");
  const half = (side: string) => page.locator(`.sandwich-half[data-side=${side}]`);
  await expect.poll(() => half("callees").locator(".flame-chart .frame").count()).toBeGreaterThan(3);
  const asked = await api<Flamegraph>(`recordings/${shop}/flamegraph?metric=allocated&show_from=%5Esession%24`);
  for (const side of ["callers", "callees"]) {
    const total = await half(side).locator(".details [title$='bytes']").last().getAttribute("title");
    expect(Number(total?.replace(/[^\d]/g, "")), side).toBe(asked.total);
  }
  expect(await half("callers").locator(".frame[data-written*='start_thread']").count()).toBeGreaterThan(0);
  expect(await half("callees").locator(".frame[data-written*='format_line']").count()).toBeGreaterThan(0);
  await page.goBack();
});

test.skipIf(inject("mock"))("the page saves one for its window and filter; hostile names stay text", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated&window=0.2s-0.9s&ignore=recurse`);
  await settled(page);
  await page.getByRole("button", { name: "Export" }).click();
  await page.getByRole("menuitem", { name: /^Report/ }).click();
  await expect.poll(() => page.locator("dialog[open]").textContent()).toContain("paths of this machine");
  await page.getByRole("checkbox").check();
  const waiting = page.waitForEvent("download");
  await page.getByRole("button", { name: "Save the report" }).click();
  const saved = join(inject("folder"), "window.html");
  await (await waiting).saveAs(saved);
  const offline = await openFile(saved);
  await settled(offline);
  const about = await offline.locator(".report-bar").textContent();
  expect(about).toContain("ignore recurse");
  expect(about).toContain("200 ms");
  await goTo(offline, "functions?metric=allocated");
  await expect.poll(() => offline.locator(".table-body").textContent()).toContain("<img src=x onerror");
  expect(await offline.evaluate(() => "hacked" in window)).toBe(false);
  // Paths were stripped: the folder of the program is nowhere.
  await goTo(offline, "recording");
  expect(await offline.locator("main").textContent()).not.toContain(inject("folder"));
});

test.skipIf(inject("mock"))("it keeps to its size, and says what that cost; paths are printed", () => {
  const full = statSync(file).size;
  const page =
    readFileSync(file, "utf8").length -
    (/id="heaptrace-report">([^<]*)</.exec(readFileSync(file, "utf8"))?.[1]?.length ?? 0);
  const small = join(inject("folder"), "small.html");
  const cap = Math.round(page + (full - page) * 0.8);
  const said = report(["memory-shop.dat", "-o", small, "--max-file-size", String(cap)]);
  expect(statSync(small).size).toBeLessThanOrEqual(cap);
  expect(said).toContain("functions at most");
  expect(said).toMatch(/\d+ paths of this machine/);
  const refused = spawnSync(
    inject("heaptrace"),
    ["report", "memory-shop.dat", "-o", small, "--max-file-size", "100k"],
    {
      cwd: inject("folder"),
      encoding: "utf8",
    },
  );
  expect(refused.status).toBe(2);
  expect(refused.stderr).toContain("more than the");
});
