// A screen of 390 pixels: nothing is squashed, cut off or drawn on something else.
import type { Page } from "playwright-core";
import { beforeAll, expect, test } from "vitest";
import type { Sites } from "../src/api/types.ts";
import { api, open, recordingOf, settled, useBrowser } from "./browser.ts";

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
