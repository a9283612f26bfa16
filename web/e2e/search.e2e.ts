// The search works in every view: it keeps, marks or counts what it matches, and `/` leads to it.
import type { Page } from "playwright-core";
import { beforeAll, expect, inject, test } from "vitest";
import type { Allocations, Functions, Lifetimes, Memory, Modules, Threads } from "../src/api/types.ts";
import { formatPercent } from "../src/lib/format.ts";
import { VIEWS } from "../src/lib/search-params.ts";
import { api, open, recordingOf, seriousFaults, settled, useBrowser } from "./browser.ts";

useBrowser();
const real = test.skipIf(inject("mock"));
let shop = "";

beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
});

const matches = (page: Page) => page.getByTestId("matches").first().textContent();
const rows = (page: Page) => page.locator(".table-body .table-row");

test("in each view the key / leads to the search, and what is typed is in the address", async () => {
  for (const view of VIEWS) {
    const page = await open(`/r/${shop}/${view}`);
    await settled(page);
    await page.locator("main.view").focus();
    await page.keyboard.press("/");
    await page.keyboard.type("zzz");
    await expect.poll(() => new URL(page.url()).searchParams.get("q"), { message: view }).toBe("zzz");
    await page.close();
  }
});

real("allocations: the server keeps the blocks of functions that match", async () => {
  const all = await api<Allocations>(`recordings/${shop}/allocations?limit=1`);
  const some = await api<Allocations>(`recordings/${shop}/allocations?limit=1&search=cache_insert`);
  expect(some.total).toBeGreaterThan(0);
  expect(some.total).toBeLessThan(all.total);
  const page = await open(`/r/${shop}/allocations?q=cache_insert`);
  await settled(page);
  await expect.poll(() => page.getByRole("grid").getAttribute("aria-rowcount")).toBe(String(some.total + 1));
  const texts = await rows(page).allTextContents();
  expect(texts.length).toBeGreaterThan(5);
  expect(texts.filter((text) => !text.includes("cache_insert"))).toEqual([]);
});

real("lifetimes: cells with a match are marked, and their part is said", async () => {
  const sum = (document: Lifetimes) => document.histogram.bytes.reduce((a, b) => a + b, 0);
  const all = await api<Lifetimes>(`recordings/${shop}/lifetimes`);
  const some = await api<Lifetimes>(`recordings/${shop}/lifetimes?focus=cache_insert`);
  const page = await open(`/r/${shop}/lifetimes?q=cache_insert`);
  await settled(page);
  await expect.poll(() => matches(page)).toContain(`(${formatPercent(sum(some) / sum(all))}) in stacks with a match`);
  const cells = some.map_count.filter((count) => count > 0).length;
  await expect.poll(() => page.locator(".heat-cell[data-match]").count()).toBe(cells);
  expect(cells).toBeLessThan(all.map_count.filter((count) => count > 0).length);
  expect(await seriousFaults(page)).toEqual([]);
});

real("threads: rows are kept by name", async () => {
  const { threads } = await api<Threads>(`recordings/${shop}/threads`);
  const [first] = threads;
  const page = await open(`/r/${shop}/threads?q=${String(first?.os_thread)}`);
  await settled(page);
  await expect.poll(() => rows(page).count()).toBe(1);
  expect(await matches(page)).toBe(`1 of ${threads.length} threads match`);
});

real("recording: modules are kept by path", async () => {
  const { modules } = await api<Modules>(`recordings/${shop}/modules`);
  const some = modules.filter(({ path }) => /libc\.so/.test(path));
  expect(some.length).toBeGreaterThan(0);
  const page = await open(`/r/${shop}/recording?q=libc\\.so`);
  await settled(page);
  await expect.poll(() => matches(page)).toBe(`${some.length} of ${modules.length} modules match`);
  expect(await rows(page).count()).toBe(some.length);
});

real("SQL: rows of the answer are kept by any of their cells", async () => {
  const sql = encodeURIComponent(
    "SELECT 'apple' AS fruit, 1 AS n UNION ALL SELECT 'pear', 2 UNION ALL SELECT 'plum', 13",
  );
  const page = await open(`/r/${shop}/sql?sql=${sql}&q=^p`);
  await settled(page);
  await expect.poll(() => matches(page)).toBe("2 of 3 rows match");
  expect((await rows(page).allTextContents()).sort()).toEqual(["pear2", "plum13"]);
});

real("source: lines are marked, n and Shift+n go to the next and the one before", async () => {
  const functions = await api<Functions>(
    `recordings/${shop}/functions?metric=allocated&by=program&search=cache_insert`,
  );
  const file = functions.rows[0]?.file ?? "";
  const page = await open(`/r/${shop}/source?metric=allocated&file=${encodeURIComponent(file)}&q=malloc`);
  await settled(page);
  const text = await matches(page);
  const [, found = "0"] = /^(\d+) of \d+ lines match$/.exec(text ?? "") ?? [];
  expect(Number(found)).toBeGreaterThan(5);
  await page.getByLabel("Lines").focus();
  await page.keyboard.press("n");
  await expect.poll(() => new URL(page.url()).searchParams.get("line")).not.toBeNull();
  const first = Number(new URL(page.url()).searchParams.get("line"));
  expect(await page.locator(".source-line[data-on][data-match] code").textContent()).toContain("malloc");
  await page.keyboard.press("n");
  await expect.poll(() => Number(new URL(page.url()).searchParams.get("line"))).toBeGreaterThan(first);
  await page.keyboard.press("Shift+N");
  await expect.poll(() => Number(new URL(page.url()).searchParams.get("line"))).toBe(first);
});

real("overview: holders, leaks and findings are those that match", async () => {
  const page = await open(`/r/${shop}/overview?q=cache_insert`);
  await settled(page);
  const names = page.locator("section[aria-labelledby=holders] tbody .mono");
  await expect.poll(() => names.allTextContents()).toEqual(["cache_insert"]);
  const leaking = page.locator("section[aria-labelledby=top-leaks] tbody .mono");
  await expect.poll(() => leaking.allTextContents()).toEqual(["cache_insert"]);
  for (const item of await page.locator(".findings > li").allTextContents())
    expect(item).toMatch(/cache_insert|No finding/);
  expect(await seriousFaults(page)).toEqual([]);
});

real("memory: rows are marked, and who mapped address space is kept", async () => {
  const { mappers } = await api<Memory>(`recordings/${shop}/memory?limit=1000`);
  const page = await open(`/r/${shop}/memory?q=${encodeURIComponent("live blocks|pthread_create")}`);
  await settled(page);
  await expect.poll(() => page.locator(".memory-parts [data-match]").count()).toBeGreaterThan(0);
  const marked = await page.locator(".memory-parts [data-match]").allTextContents();
  for (const text of marked) expect(text.toLowerCase()).toMatch(/live blocks|pthread_create/);
  const known = mappers.filter(({ stack }) => stack.length > 0);
  if (known.length > 0) expect(await matches(page)).toMatch(new RegExp(`of ${known.length} stacks that map match$`));
});

real("heap map: sites that match are marked in the legend, other cells are faint", async () => {
  const page = await open(`/r/${shop}/map`);
  await settled(page);
  const ink = () =>
    page.locator(".map-picture canvas").evaluate((canvas) => {
      const { width, height } = canvas as HTMLCanvasElement;
      const data = (canvas as HTMLCanvasElement).getContext("2d")?.getImageData(0, 0, width, height).data ?? [];
      let sum = 0;
      for (let i = 3; i < data.length; i += 4) sum += data[i] ?? 0;
      return sum;
    });
  const whole = await ink();
  await page.keyboard.press("/");
  await page.keyboard.type("import_batch");
  await expect.poll(() => matches(page)).toMatch(/^\d+ of \d+ sites that have most of a cell match$/);
  await expect.poll(ink).toBeLessThan(whole * 0.9);
  const marked = await page.locator(".map-legend [data-match]").allTextContents();
  expect(marked.length).toBeGreaterThan(0);
  for (const text of marked) expect(text).toContain("import_batch");
});

test("a table without a match says so", async () => {
  for (const view of ["threads", "compare", "pins", "recording"] as const) {
    const page = await open(`/r/${shop}/${view}?q=nothing_is_called_so`);
    await settled(page);
    await expect
      .poll(() => page.getByRole("grid").last().textContent(), { message: view })
      .toContain("No row matches the search.");
    expect(await seriousFaults(page), view).toEqual([]);
    await page.close();
  }
});

test("call tree: Enter and Shift + Enter in the search go from match to match, n and N anywhere", async () => {
  const page = await open(`/r/${shop}/calltree?metric=allocated`);
  await settled(page);
  await page.locator("main.view").focus();
  await page.keyboard.press("/");
  await page.keyboard.type("main|insert|format");
  await expect.poll(() => matches(page)).toMatch(/^(\d\d|[2-9]) lines match/);
  const current = page.locator(".calltree [data-current]");
  const at = async () => Number(await current.getAttribute("data-index"));
  const isMatch = () => current.getAttribute("data-match");
  await page.keyboard.press("Enter");
  await expect.poll(isMatch).toBe("true");
  const first = await at();
  await page.keyboard.press("Enter");
  await expect.poll(at).toBeGreaterThan(first);
  await page.keyboard.press("Shift+Enter");
  await expect.poll(at).toBe(first);
  // The keyboard is where it was.
  expect(await page.evaluate(() => document.activeElement?.matches("input[type=search]"))).toBe(true);
  await page.locator("main.view").focus();
  await page.keyboard.press("n");
  await expect.poll(at).toBeGreaterThan(first);
  await page.keyboard.press("N");
  await expect.poll(at).toBe(first);
});
