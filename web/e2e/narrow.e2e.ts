// A screen of 390 pixels: nothing is squashed, cut off or drawn on something else.
import type { Page } from "playwright-core";
import { beforeAll, expect, test } from "vitest";
import type { Sites } from "../src/api/types.ts";
import { api, open, recordingOf, seriousFaults, settled, useBrowser } from "./browser.ts";

useBrowser();
let shop = "";
let marked = "";
beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
  marked = (await recordingOf("marked")).id;
});

const narrow = async (path: string): Promise<Page> => {
  const page = await open(path, { width: 390, height: 844 });
  await settled(page);
  return page;
};

/** Left, top, right and bottom of all that match. */
const boxes = (page: Page, selector: string): Promise<[number, number, number, number][]> =>
  page.locator(selector).evaluateAll((all) =>
    all.map((one) => {
      const { left, top, right, bottom } = one.getBoundingClientRect();
      return [left, top, right, bottom];
    }),
  );

test("the map of sizes and lifetimes has the width of the screen", async () => {
  const page = await narrow(`/r/${shop}/lifetimes`);
  const [map] = await boxes(page, ".heat-map");
  expect((map?.[2] ?? 0) - (map?.[0] ?? 0)).toBeGreaterThan(330);
  const cells = await boxes(page, ".heat-cell");
  expect(cells.every(([left, , right]) => right - left >= 4)).toBe(true);
});

test("a frame's numbers go across the screen, and not over the frame", async () => {
  const page = await narrow(`/r/${shop}/flamegraph?metric=allocated`);
  await page.locator(".flame-chart").scrollIntoViewIfNeeded();
  const frame = page.locator(".flame-items .frame[aria-level='3']").first();
  await frame.hover({ force: true });
  await expect.poll(() => page.locator(".frame-tip").count()).toBe(1);
  const [tip] = await boxes(page, ".frame-tip");
  expect((tip?.[2] ?? 0) - (tip?.[0] ?? 0)).toBeGreaterThan(360);
  const under = await frame.boundingBox();
  expect((tip?.[1] ?? 0) >= (under?.y ?? 0) + 10 || (tip?.[3] ?? 0) <= (under?.y ?? 0) + 10).toBe(true);
});

test("a site's words have the width of the screen, its backtrace is below them", async () => {
  const { sites } = await api<Sites>(`recordings/${shop}/sites?limit=1&sort=allocated`);
  const page = await narrow(`/r/${shop}/sites?site=${sites[0]?.id}`);
  const columns = await boxes(page, ".site-columns > *");
  expect(columns.length).toBe(2);
  for (const [left, , right] of columns) expect(right - left).toBeGreaterThan(330);
  expect(columns[1]?.[1]).toBeGreaterThanOrEqual(columns[0]?.[3] ?? Number.POSITIVE_INFINITY);
});

test("labels below the map of lifetimes have room, and the call tree shows names", async () => {
  const page = await narrow(`/r/${shop}/lifetimes`);
  const labels = await page.locator(".heat-foot:not(:empty)").evaluateAll((all) =>
    all.map((one) => {
      const range = document.createRange();
      range.selectNodeContents(one);
      const { left, right } = range.getBoundingClientRect();
      return [left, right];
    }),
  );
  expect(labels.length).toBeGreaterThan(1);
  for (const [i, [left]] of labels.entries()) expect(left).toBeGreaterThan(labels[i - 1]?.[1] ?? 0);
  const tree = await narrow(`/r/${shop}/calltree?metric=allocated`);
  const [name] = await boxes(tree, ".tree-name .mono");
  expect(name?.[2]).toBeLessThan(300);
});

test("below the heap map its words and its legend have lines of their own", async () => {
  const page = await narrow(`/r/${shop}/map`);
  const [words] = await boxes(page, ".map-bar > *");
  const legend = await boxes(page, ".map-legend li");
  expect(legend.length).toBeGreaterThan(1);
  for (const [, top, right] of legend) {
    expect(top).toBeGreaterThanOrEqual(words?.[3] ?? Number.POSITIVE_INFINITY);
    expect(right).toBeLessThanOrEqual(390);
  }
  const swatches = await boxes(page, ".map-swatch");
  expect(swatches.every(([left, , right]) => right - left > 10)).toBe(true);
});

test("all parts of resident memory are there without scrolling inside of a panel", async () => {
  const page = await narrow(`/r/${shop}/memory`);
  const cut = await page
    .locator("main.view section")
    .evaluateAll((all) => all.filter((one) => one.scrollHeight > one.clientHeight + 1).map((one) => one.textContent));
  expect(cut).toEqual([]);
  const [row] = await boxes(page, ".memory-parts tr[data-part=live]");
  expect((row?.[3] ?? 99) - (row?.[1] ?? 0)).toBeLessThan(40);
  const sections = await boxes(page, ".memory-view > section");
  expect(sections.length).toBeGreaterThan(1);
  for (const [i, [, top]] of sections.entries()) expect(top).toBeGreaterThanOrEqual(sections[i - 1]?.[3] ?? 0);
});

test("names of marks do not stand on one another", async () => {
  const page = await narrow(`/r/${marked}/overview`);
  const names = await boxes(page, ".flag[data-kind=mark] span");
  expect(names.length).toBeGreaterThan(0);
  names.sort((a, b) => a[0] - b[0]);
  for (const [i, [left]] of names.entries()) expect(left).toBeGreaterThanOrEqual((names[i - 1]?.[2] ?? 0) - 0.5);
});

test("the words about the quality of the figures fit, however many they are", async () => {
  const page = await open("/", { width: 320, height: 640 });
  await page.route(`**/api/v1/recordings/${shop}`, async (route) => {
    const response = await route.fetch();
    const body = await response.json();
    const stacks = { ...body.recorder.stacks, total: 100_000_000 };
    const recorder = { ...body.recorder, stacks, truncated_stacks: 3, wait_ns: 4000 * body.process.duration_ns };
    await route.fulfill({ response, json: { ...body, recorder } });
  });
  await page.goto(new URL(`/r/${shop}/sites`, page.url()).href);
  await settled(page);
  await expect
    .poll(() => page.locator(".pill.quality").textContent())
    .toMatch(/< 0\.01% of stacks cut · 4,000 threads waiting/);
  const [pill] = await boxes(page, ".pill.quality");
  expect(pill?.[2]).toBeLessThanOrEqual(320);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(320);
});

test("how the flame graph is drawn is one menu beside its sum, whose switches say whether they are on", async () => {
  const page = await narrow(`/r/${shop}/flamegraph?metric=allocated`);
  const [bar] = await boxes(page, ".flame-bar");
  expect((bar?.[3] ?? 99) - (bar?.[1] ?? 0)).toBeLessThan(45);
  await page.getByRole("button", { name: "Graph" }).click();
  const inverted = page.getByRole("menuitemcheckbox", { name: "Inverted" });
  expect(await inverted.getAttribute("aria-checked")).toBe("false");
  expect(await page.getByRole("menuitem").allTextContents()).toEqual(["Save as SVG", "Save as PNG"]);
  expect(await seriousFaults(page)).toEqual([]);
  await inverted.press("Enter");
  await expect.poll(() => new URL(page.url()).searchParams.get("inverted")).toBe("1");
  await settled(page);
  await page.getByRole("button", { name: "Graph" }).click();
  expect(await inverted.getAttribute("aria-checked")).toBe("true");
});

test("a stack of two thousand frames scrolls within its graph, not with the page", async () => {
  const page = await narrow(`/r/${shop}/flamegraph?metric=allocated`);
  const chart = page.locator(".flame-chart");
  expect(await chart.evaluate((one) => one.scrollHeight)).toBeGreaterThan(10_000);
  expect((await chart.boundingBox())?.height).toBeLessThan(844);
  expect(await page.evaluate(() => document.documentElement.scrollHeight)).toBeLessThan(2000);
});

test("unit, search and “+ Filter” are on one line", async () => {
  const page = await narrow(`/r/${shop}/functions?metric=allocated`);
  const [unit, search, filter] = await Promise.all([
    page.getByRole("radio", { name: "Bytes" }).boundingBox(),
    page.getByRole("searchbox").boundingBox(),
    page.getByRole("button", { name: "+ Filter" }).boundingBox(),
  ]);
  const middle = (box: typeof unit) => (box?.y ?? 0) + (box?.height ?? 0) / 2;
  for (const one of [unit, filter]) expect(Math.abs(middle(one) - middle(search))).toBeLessThan(8);
  expect(search?.width).toBeGreaterThan(100);
});

test("the bars of all size classes are on the screen, each as wide as a finger", async () => {
  const page = await open("/", { width: 390, height: 844 });
  await page.route(/\/sizes(\?|$)/, async (route) => {
    const response = await route.fetch();
    const body = await response.json();
    const lower = Array.from({ length: 24 }, (_, power) => 2 ** power);
    const count = lower.map(() => 1);
    await route.fulfill({ response, json: { ...body, histogram: { ...body.histogram, lower, count, bytes: lower } } });
  });
  await page.goto(new URL(`/r/${shop}/allocations`, page.url()).href);
  await settled(page);
  await expect.poll(() => page.locator(".size-class").count()).toBe(24);
  const bars = await boxes(page, ".size-class");
  for (const [left, , right] of bars) {
    expect(left).toBeGreaterThanOrEqual(0);
    expect(right).toBeLessThanOrEqual(390);
    expect(right - left).toBeGreaterThanOrEqual(24);
  }
  // The lowest bar's label is inside of the bars' own part of the page.
  const [all] = await boxes(page, ".size-classes");
  expect(Math.max(...bars.map(([, , , bottom]) => bottom))).toBeLessThanOrEqual(all?.[3] ?? 0);
});

test("the timeline stays where it is under the pointer, whose values have their line", async () => {
  const page = await narrow(`/r/${shop}/compare?a=0.3s&b=0.6s`);
  const place = () => page.locator(".timeline-surface").boundingBox();
  const before = await place();
  const grip = await page.locator("[data-grip=b]").boundingBox();
  if (!before || !grip) throw new Error("no timeline with B");
  await page.mouse.move(grip.x + 5, grip.y + 5);
  await expect.poll(() => page.locator(".readout").textContent()).toMatch(/^t .*live/);
  expect(await place()).toEqual(before);
  await page.mouse.down();
  await page.mouse.move(grip.x + 45, grip.y + 5, { steps: 5 });
  await page.mouse.up();
  await expect.poll(() => Number(new URL(page.url()).searchParams.get("b")?.replace("s", ""))).toBeGreaterThan(0.61);
});
