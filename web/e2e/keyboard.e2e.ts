// Everything without a mouse: each view is reached by Tab, its menu opens by Shift+F10 and gives the focus back.
import type { Page } from "playwright-core";
import { beforeAll, expect, inject, test } from "vitest";
import { readSearch } from "../src/lib/search-params.ts";
import { open, recordingOf, settled, useBrowser } from "./browser.ts";

useBrowser();

const real = !inject("mock");
let shop = "";
beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
});

const searchOf = (page: Page) => readSearch(new URL(page.url()).search);
const focused = (page: Page) =>
  page.evaluate(() => {
    const element = document.activeElement;
    return element?.closest("[role=row]") ? "row" : `${element?.tagName} ${element?.className ?? ""}`;
  });

/** Presses Tab until what has the focus fits; fails when everything had it. */
async function tabTo(page: Page, selector: string): Promise<void> {
  for (let i = 0; i < 120; i += 1) {
    await page.keyboard.press("Tab");
    if (await page.evaluate((wanted) => document.activeElement?.matches(wanted) ?? false, selector)) return;
  }
  throw new Error(`Tab does not reach ${selector}`);
}

// Where the menu of each view is asked for.
const PLACES = [
  ["flamegraph", ".flame-chart"],
  ["calltree", ".table-body [role=row]"],
  ["functions", ".table-body [role=row]"],
  ["sites", ".table-body [role=row]"],
  ["leaks", ".table-body [role=row]"],
  ["allocations", ".table-body [role=row]"],
  ["threads", ".table-body [role=row]"],
  ["compare", ".table-body [role=row]"],
] as const;

test.each(PLACES)("%s: Tab reaches it, Shift+F10 opens its menu, Escape gives the focus back", async (view, place) => {
  const page = await open(`/r/${shop}/${view}?metric=allocated&a=0.2s&b=0.5s`);
  await settled(page);
  await page.waitForSelector(place);
  await tabTo(page, place);
  const before = await focused(page);
  await page.keyboard.press("Shift+F10");
  await expect.poll(() => page.getByRole("menu").count()).toBe(1);
  await expect.poll(() => page.evaluate(() => document.activeElement?.getAttribute("role"))).toMatch(/^menu(item)?$/);
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Escape");
  await expect.poll(() => page.getByRole("menu").count()).toBe(0);
  expect(await focused(page)).toBe(before);
});

test("a stack's frame has its menu, too", async () => {
  const page = await open(`/r/${shop}/leaks`);
  await settled(page);
  await tabTo(page, ".frame-button");
  await page.keyboard.press("Shift+F10");
  await page.getByRole("menuitem", { name: /^Focus/ }).press("Enter");
  await expect.poll(() => searchOf(page).filters?.focus).toBeDefined();
});

test("from the overview to the evidence and back, a window, a metric, a filter and its removal by keys alone", async () => {
  const page = await open(`/r/${shop}/overview`);
  await settled(page);
  await tabTo(page, ".findings a");
  await page.keyboard.press("Enter");
  await settled(page);
  expect(new URL(page.url()).pathname).not.toContain("overview");
  // Alt and ← is the browser's own, which a headless one does not have.
  await page.goBack();
  await expect.poll(() => new URL(page.url()).pathname).toContain("overview");
  await settled(page);
  await page.keyboard.press("4");
  await expect.poll(() => new URL(page.url()).pathname).toContain("functions");
  await settled(page);
  // Of a program that has ended the peak is what is shown at first.
  await page.keyboard.press("m");
  await expect.poll(() => searchOf(page).metric).toBe("leaked");
  await page.keyboard.press("b");
  await expect.poll(() => searchOf(page).unit).toBe("count");
  await tabTo(page, ".timeline-surface");
  await page.keyboard.press("Shift+ArrowRight");
  await expect.poll(() => searchOf(page).window).toBeDefined();
  await page.keyboard.press("Escape");
  await expect.poll(() => searchOf(page).window).toBeUndefined();
  await settled(page);
  await tabTo(page, ".table-body [role=row]");
  await page.keyboard.press("Shift+F10");
  await page.getByRole("menuitem", { name: /^Ignore/ }).press("Enter");
  await expect.poll(() => page.locator(".chip").count()).toBe(1);
  await tabTo(page, ".chip button");
  await page.keyboard.press("Enter");
  await expect.poll(() => page.locator(".chip").count()).toBe(0);
});

test("the export menu and its report dialog by keys", async () => {
  if (!real) return;
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  await tabTo(page, ".top-bar > button[aria-haspopup=menu]");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Enter");
  await expect.poll(() => page.locator("dialog[open]").count()).toBe(1);
  await page.keyboard.press("Escape");
  await expect.poll(() => page.locator("dialog[open]").count()).toBe(0);
});

test("with reduced motion nothing moves by itself; without it frames glide", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const moving = () =>
    page.evaluate(() => document.getAnimations().filter((animation) => animation.playState === "running").length);
  expect(await moving()).toBe(0);
  const frame = page.locator(".flame-chart .frame").nth(3);
  const width = () => frame.evaluate((one) => one.getBoundingClientRect().width);
  const before = await width();
  await frame.click({ force: true });
  const widths = new Set<number>();
  for (let i = 0; i < 8; i += 1) widths.add(Math.round(await width()));
  expect(before).toBeGreaterThan(0);
  // The old width and the goal, nothing in between.
  expect(widths.size).toBeLessThanOrEqual(2);
});

test("names of ten thousand characters and two thousand frames fit into menus, tips and dialogs", async () => {
  if (!real) return;
  const page = await open(`/r/${shop}/functions?metric=allocated&by=function&q=vector`, { width: 1024 });
  await settled(page);
  await tabTo(page, ".table-body [role=row]");
  await page.keyboard.press("Shift+F10");
  const box = await page.getByRole("menu").boundingBox();
  expect((box?.x ?? 0) + (box?.width ?? 9999)).toBeLessThanOrEqual(1024);
  await page.keyboard.press("Escape");
  await page.goto(page.url().replace("/functions", "/flamegraph").replace("q=vector", "q=recurse"));
  await settled(page);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(1024);
});

test("g and a letter lead to every view, also from a graph that has the letter for itself; the sheet says them", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  await page.locator(".flame-chart").focus();
  for (const [letter, view] of [
    ["m", "memory"],
    ["q", "sql"],
    ["f", "flamegraph"],
  ] as const) {
    await page.keyboard.press("g");
    await page.keyboard.press(letter);
    await expect.poll(() => new URL(page.url()).pathname).toBe(`/r/${shop}/${view}`);
  }
  expect(searchOf(page).filters).toBeUndefined();
  await settled(page);
  await page.keyboard.press("?");
  const sheet = await page.locator("dialog[open]").textContent();
  expect(sheet).toContain("o Overview, f Flame graph, c Call tree");
});

test("plus, minus and 0 zoom the graph that has the focus, and lead nowhere", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const chart = page.locator(".flame-chart");
  const view = () => chart.getAttribute("data-view");
  await chart.focus();
  await expect.poll(view).toBe("0.00000 1.00000");
  await page.keyboard.press("+");
  await page.keyboard.press("+");
  await expect.poll(view).not.toBe("0.00000 1.00000");
  await page.keyboard.press("0");
  await expect.poll(view).toBe("0.00000 1.00000");
  expect(new URL(page.url()).pathname).toBe(`/r/${shop}/flamegraph`);
});

test("whether capitals matter is a button beside the search", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated&by=function&q=CACHE_insert`);
  await settled(page);
  const rows = page.locator(".table-body [role=row]");
  const button = page.getByRole("button", { name: "Match case" });
  expect(await button.getAttribute("aria-pressed")).toBe("true");
  expect(await rows.count()).toBe(0);
  await button.click();
  await expect.poll(() => searchOf(page).q).toBe("(?i)CACHE_insert");
  await settled(page);
  await expect.poll(() => rows.count()).toBeGreaterThan(0);
  expect(await button.getAttribute("aria-pressed")).toBe("false");
});
