// Request contexts, an interpreter's frames and languages: chosen on the page, kept in the address, asked of the server.
import { beforeAll, expect, inject, test } from "vitest";
import type { Flamegraph, Functions } from "../src/api/types.ts";
import { formatBytes } from "../src/lib/format.ts";
import { api, open, recordingOf, settled, useBrowser } from "./browser.ts";

useBrowser();
let shop = "";
let marked = "";

beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
  marked = (await recordingOf("marked")).id;
});

test("a request context is chosen from those that there are; only its blocks count", async () => {
  const page = await open(`/r/${marked}/functions?metric=allocated&unit=count&by=function`);
  await settled(page);
  await page.getByRole("button", { name: "+ Filter" }).click();
  await page.locator(".add-filter select").first().selectOption("context");
  await page.waitForSelector("#context-names option[value='GET /items']", { state: "attached" });
  await page.getByLabel("Value of the filter").fill("GET /items");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await expect.poll(() => new URL(page.url()).searchParams.get("context")).toBe("GET /items");
  // The second phase makes 20 blocks; the others are of no request.
  await expect.poll(() => page.locator(".view-bar b, .view-slot b").first().textContent()).toBe("20");
  await page.getByRole("button", { name: "Remove filter context" }).click();
  await settled(page);
  await expect.poll(() => page.locator(".view-bar b, .view-slot b").first().textContent()).not.toBe("20");
});

test("the interpreter's own frames are asked for where the address or the button says so", async () => {
  const page = await open(`/r/${shop}/flamegraph?frames=all`);
  await settled(page);
  const button = page.getByRole("button", { name: "Interpreter frames" });
  expect(await button.getAttribute("aria-pressed")).toBe("true");
  const asked = await page.evaluate(() => performance.getEntriesByType("resource").map(({ name }) => name));
  expect(asked.filter((name) => name.includes("/flamegraph?") && name.includes("frames=all")).length).toBeGreaterThan(
    0,
  );
  await button.click();
  await expect.poll(() => new URL(page.url()).searchParams.get("frames")).toBeNull();
  await settled(page);
  // The shop is written in C alone: there is no interpreter to speak of.
  expect(await button.count()).toBe(0);
});

test("frames are coloured by language, and the legend says which", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  await page.getByLabel("Colours").selectOption("language");
  await expect.poll(() => new URL(page.url()).searchParams.get("color")).toBe("language");
  const [first] = await page.locator(".flame-legend li").allTextContents();
  expect(first).toMatch(/^c \d/);
});

test("a size class filters by a click, and all classes stay in sight", async () => {
  const page = await open(`/r/${marked}/allocations`);
  await settled(page);
  const bars = page.locator(".size-class");
  await bars.first().waitFor();
  const before = await bars.count();
  // 40 blocks of 10,000 bytes, nothing else between 8 and 16 KiB.
  const bar = page.getByRole("button", { name: /8.00 KiB to 16.0 KiB: 40 blocks/ });
  await bar.click();
  await expect.poll(() => new URL(page.url()).searchParams.get("min_size")).toBe("8192");
  expect(new URL(page.url()).searchParams.get("max_size")).toBe("16383");
  await expect.poll(() => page.locator(".view-slot, .view-bar").first().textContent()).toContain("40 blocks");
  expect(await bars.count()).toBe(before);
  expect(await bar.getAttribute("aria-pressed")).toBe("true");
  await bar.click();
  await expect.poll(() => new URL(page.url()).searchParams.get("min_size")).toBeNull();
});

test.skipIf(inject("mock"))("a second focus adds to the first: the stacks need both", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const frame = (name: string) => page.locator(`.flame-items .frame[data-function="${name}"]`).first();
  for (const name of ["session", "cache_insert"]) {
    await frame(name).click({ button: "right", force: true });
    await page.getByRole("menuitem", { name: /^Focus: only/ }).click();
    await settled(page);
  }
  const chips = page.locator(".filter-bar .chip");
  expect(await chips.allTextContents()).toEqual([
    expect.stringContaining("session"),
    expect.stringContaining("cache_insert"),
  ]);
  const of = async (focus: string) =>
    (await api<Flamegraph>(`recordings/${shop}/flamegraph?metric=allocated&focus=${encodeURIComponent(focus)}`)).total;
  const [one, two] = [await of("^session$"), await of("^cache_insert$")];
  const both = await of("^session$\n^cache_insert$");
  expect(both).toBeGreaterThan(0);
  expect(both).toBeLessThan(Math.max(one, two));
  const total = page.locator(".ancestors .strong");
  await expect.poll(() => total.textContent()).toBe(formatBytes(both));
  await page.reload();
  await settled(page);
  expect(await chips.count()).toBe(2);
  await chips.first().getByRole("button").click();
  await settled(page);
  await expect.poll(() => total.textContent()).toBe(formatBytes(two));
});

test.skipIf(inject("mock"))(
  "a second pattern to ignore has a chip of its own, from the menu and from “+ Filter”",
  async () => {
    const page = await open(`/r/${shop}/functions?metric=allocated&ignore=cache_INSERT`);
    await settled(page);
    await page.locator(".table-body [role=row]", { hasText: "import_batch" }).click({ button: "right" });
    await page.getByRole("menuitem", { name: /^Ignore/ }).click();
    await settled(page);
    await page.getByRole("button", { name: "+ Filter" }).click();
    await page.locator(".add-filter select").first().selectOption("ignore");
    await page.getByLabel("Value of the filter").fill("format_line");
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await settled(page);
    const chips = page.locator(".filter-bar .chip-value");
    await expect
      .poll(() => chips.allTextContents())
      .toEqual(["cache_INSERT", expect.stringMatching(/^\^import_batch/), "format_line"]);
    const rows = page.locator(".table-body [role=row]");
    const names = async () => (await rows.allTextContents()).join(" ");
    expect(await names()).not.toMatch(/import_batch|format_line/);
    // Small letters match both, capitals only themselves.
    expect(await names()).toContain("cache_insert");
    await page.locator(".filter-bar .chip button").nth(2).click();
    await settled(page);
    await expect.poll(names).toContain("format_line");
    expect(await names()).not.toContain("import_batch");
  },
);

test.skipIf(inject("mock"))("under a filter the overview says which figures are whose", async () => {
  const page = await open(`/r/${shop}/overview`);
  await settled(page);
  expect(await page.locator("#key-figures").textContent()).not.toContain("whole");
  expect(await page.locator("#window-facts").count()).toBe(0);
  const focused = await api<Flamegraph>(`recordings/${shop}/flamegraph?metric=allocated&focus=cache_insert`);
  await page.goto(`${new URL(page.url()).href}?focus=cache_insert`);
  await settled(page);
  expect(await page.locator("#key-figures").textContent()).toContain("of the whole recording");
  expect(await page.locator("#window-facts").textContent()).toBe("What passes the filters");
  await expect
    .poll(() => page.locator("[data-fact='window allocated'] .fact-value").textContent())
    .toBe(formatBytes(focused.total));
  // The Recording view is about the process: it offers no filter.
  await page.goto(`${new URL(page.url()).origin}/r/${shop}/recording`);
  await settled(page);
  expect(await page.getByRole("button", { name: "+ Filter" }).count()).toBe(0);
});

test.skipIf(inject("mock"))("blocks are chosen by who freed them: what was never freed has nobody", async () => {
  // Every line is formatted and freed by the same function; the cache is never freed.
  const total = async (rest: string) =>
    (await api<Functions>(`recordings/${shop}/functions?metric=allocated&unit=count&by=program${rest}`)).total;
  expect(await total("&focus=%5Eformat_line%24&freed_by=%5Eformat_line%24")).toBe(
    await total("&focus=%5Eformat_line%24"),
  );
  expect(await total("&focus=cache_insert&freed_by=.")).toBe(0);
  const page = await open(`/r/${shop}/functions?metric=allocated&unit=count`);
  await settled(page);
  await page.getByRole("button", { name: "+ Filter" }).click();
  await page.locator(".add-filter select").first().selectOption("freed_by");
  await page.getByLabel("Value of the filter").fill("^format_line$");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await settled(page);
  // The server is asked whether it is a filter before it is one.
  await expect.poll(() => new URL(page.url()).searchParams.get("freed_by")).toBe("^format_line$");
  await expect.poll(() => page.locator(".table-body .table-row").count()).toBe(1);
  expect(await page.locator(".table-body .table-row").first().textContent()).toContain("format_line");
  expect(await page.locator(".chip").textContent()).toContain("freed by");
});

test.skipIf(inject("mock"))(
  "a thread and a module that the recording does not have are refused where they are typed",
  async () => {
    const page = await open(`/r/${shop}/functions?metric=allocated`);
    await settled(page);
    await page.getByRole("button", { name: "+ Filter" }).click();
    for (const [name, value] of [
      ["thread", "nobody"],
      ["module", "nowhere"],
    ] as const) {
      await page.locator(".add-filter select").first().selectOption(name);
      await page.getByLabel("Value of the filter").fill(value);
      await page.getByRole("button", { name: "Add", exact: true }).click();
      await expect.poll(() => page.locator(".add-filter [role=alert]").textContent()).toContain(value);
      expect(new URL(page.url()).searchParams.get(name)).toBeNull();
      expect(await page.locator(".table-body .table-row").count()).toBeGreaterThan(0);
    }
    // The threads that there are can be chosen.
    await page.locator(".add-filter select").first().selectOption("thread");
    await expect.poll(() => page.locator("#thread-names option").count()).toBeGreaterThan(0);
  },
);
