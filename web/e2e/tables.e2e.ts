// Tables in several columns' order: by pointer, by keyboard, from a link, and in what is saved.
import type { Page } from "playwright-core";
import { beforeAll, expect, test } from "vitest";
import type { Allocations, Threads } from "../src/api/types.ts";
import { api, open, recordingOf, savedLines, settled, useBrowser } from "./browser.ts";

useBrowser();
let shop = "";

beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
});

/** Cells of a column, from the top, as far as rows are drawn. */
const cells = (page: Page, column: number): Promise<string[]> =>
  page
    .locator(".table-body .table-row")
    .evaluateAll(
      (rows, at) =>
        rows
          .sort((a, b) => Number((a as HTMLElement).dataset["index"]) - Number((b as HTMLElement).dataset["index"]))
          .map((row) => row.children[at]?.textContent ?? ""),
      column,
    );

const numbersOfThreads = (page: Page, column: number): Promise<number[]> =>
  page
    .locator(".table-body .table-row")
    .evaluateAll(
      (rows, at) =>
        rows
          .sort((a, b) => Number((a as HTMLElement).dataset["index"]) - Number((b as HTMLElement).dataset["index"]))
          .map((row) => Number(row.children[at]?.querySelector("[data-thread]")?.getAttribute("data-thread") ?? -1)),
      column,
    );
const headers = (page: Page): Promise<string[]> => page.locator("[role=columnheader]").allTextContents();
const sortOf = (page: Page): string | null => new URL(page.url()).searchParams.get("sort");

test("a click and a Shift+click right after it: the server sorts by both, the CSV is in that order", async () => {
  const page = await open(`/r/${shop}/sites`);
  await settled(page);
  const at = (await headers(page)).map((text) => text.replace(/[ ▾▴0-9]+$/, ""));
  const [count, name] = [at.indexOf("Blocks"), at.indexOf("Allocated by")];
  await page.evaluate(() => {
    const button = (text: string) =>
      [...document.querySelectorAll<HTMLElement>("button.sort")].find((one) => one.textContent?.startsWith(text));
    button("Blocks")?.click();
    button("Allocated by")?.dispatchEvent(new MouseEvent("click", { bubbles: true, shiftKey: true }));
  });
  await expect.poll(() => sortOf(page)).toBe("count,name");
  await settled(page);
  expect((await headers(page))[count]).toBe("Blocks ▾1");
  expect((await headers(page))[name]).toBe("Allocated by ▴2");

  const [head, ...lines] = await savedLines(page);
  const saved = (head ?? "").split(",").indexOf("Blocks");
  const counts = lines.map((line) => Number(line.split(",")[saved]));
  expect(counts.length).toBeGreaterThan(5);
  expect(counts).toEqual([...counts].sort((a, b) => b - a));
  // Among equals the names decide; the shop has sites of one block each.
  const texts = await cells(page, count);
  const names = await cells(page, name);
  const once = names.filter((_, i) => texts[i] === "1").map((text) => text.split(" ← ")[0] ?? "");
  expect(once.length).toBeGreaterThan(1);
  expect(once).toEqual([...once].sort());

  await page.reload();
  await settled(page);
  expect(await cells(page, name)).toEqual(names);
});

test("Shift+Enter adds a column by keyboard, turns it round, and takes it away", async () => {
  const page = await open(`/r/${shop}/functions?by=function`);
  await settled(page);
  await page.locator("button.sort", { hasText: "Module" }).focus();
  await page.keyboard.press("Enter");
  await page.locator("button.sort", { hasText: /^Cum(?! %)/ }).focus();
  await page.keyboard.press("Shift+Enter");
  await expect.poll(() => sortOf(page)).toBe("module,cum");
  await page.keyboard.press("Shift+Enter");
  await expect.poll(() => sortOf(page)).toBe("module,-cum");
  await page.keyboard.press("Shift+Enter");
  await expect.poll(() => sortOf(page)).toBe("module");
  await settled(page);
  const at = (await headers(page)).findIndex((text) => text.startsWith("Module"));
  const modules = await cells(page, at);
  expect(new Set(modules).size).toBeGreaterThan(1);
  expect(modules).toEqual([...modules].sort());
});

test("a table that is sorted in the page is sorted by two columns, too", async () => {
  const page = await open(`/r/${shop}/threads`);
  await settled(page);
  const buttons = page.locator(".table-view button.sort");
  const names = await buttons.allTextContents();
  await buttons.nth(names.length - 1).click();
  await buttons.nth(0).click({ modifiers: ["Shift"] });
  await expect.poll(() => sortOf(page)?.split(",").length).toBe(2);
  expect((await buttons.nth(0).textContent()) ?? "").toMatch(/[▾▴]2$/);
  expect((await buttons.nth(names.length - 1).textContent()) ?? "").toMatch(/[▾▴]1$/);
});

test("where the columns do not fit, what a row is about comes first", async () => {
  for (const [view, width] of [
    ["sites", 1024],
    ["functions", 390],
    ["pins", 390],
    ["churn", 390],
    ["leaks", 390],
  ] as const) {
    const page = await open(`/r/${shop}/${view}?metric=allocated`, { width, height: 844 });
    await settled(page);
    const name = page.locator(".table-body .table-row .mono").first();
    const box = await name.boundingBox();
    expect(box?.x, view).toBeLessThan(40);
    expect(box?.width, view).toBeGreaterThan(30);
    await page.close();
  }
  const wide = await open(`/r/${shop}/functions?metric=allocated`, { width: 1440 });
  await settled(wide);
  expect((await headers(wide))[0]).toMatch(/^Flat/);
});

test("below the pins, too, a table is saved in the order that it has", async () => {
  const page = await open(`/r/${shop}/pins`);
  await settled(page);
  await page.locator("button.sort", { hasText: "Function" }).click();
  await expect.poll(() => sortOf(page)).toBe("function");
  const lines = await savedLines(page);
  const at = (lines[0] ?? "").split(",").indexOf("Function");
  // Names in full are saved; those of C are shown in full, too.
  const plain = (name: string | undefined) => /^\w+$/.test(name ?? "");
  const saved = lines.map((line) => line.split(",")[at]).filter(plain);
  expect(saved.length).toBeGreaterThan(3);
  const column = (await headers(page)).findIndex((text) => text.startsWith("Function"));
  expect(saved.slice(1)).toEqual((await cells(page, column)).filter(plain));
  await page.getByRole("button", { name: "Copy table" }).click();
  const copied = (await page.evaluate(() => navigator.clipboard.readText())).split("\n");
  expect(copied.map((line) => line.split("\t")[at]).filter(plain)).toEqual(saved);
});

test.each(["threads", "allocations", "compare"] as const)(
  "the table of %s is saved as CSV, row by row",
  async (view) => {
    const page = await open(`/r/${shop}/${view}?a=0.2s&b=0.5s`);
    await settled(page);
    const lines = await savedLines(page);
    const loaded = Number(await page.getByRole("grid").first().getAttribute("aria-rowcount")) - 1;
    expect(lines.length - 1).toBe(loaded);
    expect(lines[0]?.split(",").length).toBeGreaterThan(5);
  },
);

test("the last of all blocks is one key away, and the blocks before it follow", async () => {
  const page = await open(`/r/${shop}/allocations`);
  await settled(page);
  const { total } = await api<Allocations>(`recordings/${shop}/allocations?limit=1`);
  expect(total).toBeGreaterThan(600);
  await page.locator(".table-body [role=row]").first().focus();
  await page.keyboard.press("End");
  const last = page.locator(`[aria-rowindex="${total + 1}"]`);
  await expect.poll(() => last.textContent()).toContain((total - 1).toLocaleString("en-US"));
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("ArrowUp");
  await expect.poll(() => new URL(page.url()).searchParams.get("row")).toBe(String(total - 3));
  const block = page.getByRole("complementary", { name: "The selected block" });
  const { allocations } = await api<Allocations>(`recordings/${shop}/allocations?limit=1&offset=${total - 3}`);
  await expect.poll(() => block.textContent()).toContain(allocations[0]?.address);
  // Threads have their names.
  const threads = await api<Threads>(`recordings/${shop}/threads`);
  const name = threads.threads.find((thread) => thread.id === allocations[0]?.thread)?.name;
  expect(await block.textContent()).toContain(name);
});

/** The figure of a cell such as `1.50 MiB`, `12.5 ms` or `4,096`, in the smallest unit. */
function figure(text: string): number {
  const [, number = "NaN", unit = ""] = /^([\d.,]+) ?(\S*)/.exec(text.trim()) ?? [];
  const factor: Record<string, number> = {
    KiB: 2 ** 10,
    MiB: 2 ** 20,
    us: 1e3,
    µs: 1e3,
    ms: 1e6,
    s: 1e9,
    k: 1e3,
    M: 1e6,
  };
  return Number(number.replaceAll(",", "")) * (factor[unit] ?? 1);
}

test.each([
  ["sites", "Lifetime", "lifetime", "figures"],
  ["sites", "Trend", "trend", undefined],
  ["sites", "Source", "source", undefined],
  ["functions?metric=allocated", "Flat %", "flat", "figures"],
  ["functions?metric=allocated", "Cum %", "cum", "figures"],
  ["allocations", "Block", "born", "figures"],
  ["allocations", "Address", "address", "texts down"],
  ["allocations", "Thread", "thread", "threads"],
  ["allocations", "Freed by", "free_thread", "threads"],
  ["allocations", "Allocated by", "function", "texts"],
  ["churn", "A second", "allocations", "figures"],
  ["churn", "Longest chain of reallocs", "chain", undefined],
  ["churn", "Source", "source", undefined],
] as const)("%s can be sorted by %s, at the server", async (view, header, key, kind) => {
  const page = await open(`/r/${shop}/${view}`);
  await settled(page);
  const asked: string[] = [];
  page.on("request", (request) => asked.push(request.url()));
  await page.getByRole("columnheader", { name: header }).getByRole("button").click();
  await expect.poll(() => sortOf(page)?.replace("-", "")).toBe(key);
  await settled(page);
  // What was the order already is turned round; then it is chosen as any other.
  if (sortOf(page) === `-${key}`) {
    await page.getByRole("columnheader", { name: header }).getByRole("button").click();
    await expect.poll(() => sortOf(page)).toBe(key);
    await settled(page);
  }
  const at = (await headers(page)).findIndex((text) => text.startsWith(header));
  // Threads have names, and are ordered by their numbers.
  const read = async () => (kind === "threads" ? (await numbersOfThreads(page, at)).map(String) : cells(page, at));
  const shown = await read();
  expect(shown.length).toBeGreaterThan(2);
  if (kind === "threads") {
    expect(shown.map(Number)).toEqual(shown.map(Number).sort((a, b) => b - a));
  } else if (kind === "figures") {
    const figures = shown.map(figure).map((value) => (Number.isNaN(value) ? -1 : value));
    expect(figures).toEqual([...figures].sort((a, b) => b - a));
  } else if (kind !== undefined) {
    const sign = kind === "texts" ? 1 : -1;
    expect(shown).toEqual([...shown].sort((a, b) => sign * (a < b ? -1 : a > b ? 1 : 0)));
  }
  if (kind !== undefined) {
    // Turned round, another row is the first.
    await page.getByRole("columnheader", { name: header }).getByRole("button").click();
    await expect.poll(() => sortOf(page)).toBe(`-${key}`);
    await settled(page);
    await expect.poll(() => read().then(([first]) => first)).not.toBe(shown[0]);
  }
  expect(asked.some((url) => new URL(url).searchParams.get("sort")?.replace("-", "") === key)).toBe(true);
});

test("Sum % follows from the order, as in pprof, and its tooltip says so", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated`);
  await settled(page);
  const header = page.getByRole("columnheader", { name: "Sum %" });
  expect(await header.getByRole("button").count()).toBe(0);
  expect(await header.getAttribute("title")).toContain("the same in pprof");
});

test("blocks are grouped by size class, and a class is a filter", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated&by=size_class&sort=name`);
  await settled(page);
  const at = (await headers(page)).findIndex((text) => text.startsWith("Size class"));
  const names = await cells(page, at);
  expect(names).toContain("64 B to < 128 B");
  const lower = names.map((name) => figure(name));
  expect(lower).toEqual([...lower].sort((a, b) => a - b));
  await page.locator(".table-row", { hasText: "64 B to < 128 B" }).click({ button: "right" });
  await page.getByRole("menuitem", { name: "Only this" }).click();
  await expect.poll(() => new URL(page.url()).searchParams.get("min_size")).toBe("64");
  expect(new URL(page.url()).searchParams.get("max_size")).toBe("127");
});

test("the call tree is saved as CSV: all of it, the callers above what they call", async () => {
  const page = await open(`/r/${shop}/calltree?metric=allocated`);
  await settled(page);
  const [head = "", ...lines] = await savedLines(page);
  expect(head.split(",").slice(0, 5)).toEqual(["Level", "Total (bytes)", "Total (%)", "Self (bytes)", "Function"]);
  // Two thousand frames of recursion are closed on the page.
  expect(lines.length).toBeGreaterThan(2000);
  const [, total] = (lines[0] ?? "").split(",").map(Number);
  const own = lines.reduce((sum, line) => sum + Number(line.split(",")[3]), 0);
  expect(own).toBe(total);
});

test("churn is saved as CSV in the order of the table, as far as the search lets rows through", async () => {
  const page = await open(`/r/${shop}/churn?sort=bytes&q=_`);
  await settled(page);
  const [head = "", ...lines] = await savedLines(page);
  const [bytes, name] = [head.split(",").indexOf("Bytes"), head.split(",").indexOf("Program function")];
  const sums = lines.map((line) => Number(line.split(",")[bytes]));
  expect(sums.length).toBeGreaterThan(2);
  expect(sums).toEqual([...sums].sort((a, b) => b - a));
  for (const line of lines) expect(line.split(",")[name]).toContain("_");
  expect(lines.length).toBe(Number(await page.getByRole("grid").getAttribute("aria-rowcount")) - 1);
});

test("the column that decides the order shows its whole name and the sign of the order", async () => {
  for (const [view, sort] of [
    ["sites", "live"],
    ["sites", "allocated"],
    ["sites", "freed"],
    ["sites", "leaked"],
    ["sites", "at_peak"],
    ["sites", "temporary"],
    ["threads", "allocated"],
    ["threads", "temporary"],
  ]) {
    const page = await open(`/r/${shop}/${view}?sort=${sort}`);
    await settled(page);
    const cut = await page
      .locator("[role=columnheader][aria-sort]")
      .evaluateAll((heads) =>
        heads.filter((head) => head.scrollWidth > head.clientWidth).map((head) => head.textContent),
      );
    expect(cut, `${view} by ${sort}`).toEqual([]);
    await page.close();
  }
});
