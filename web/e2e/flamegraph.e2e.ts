// The flame graph: zoom, search, keyboard, menus, deep stacks, hostile names.
import type { Page } from "playwright-core";
import { beforeAll, expect, inject, test } from "vitest";
import type { Flamegraph, Functions, Info, Modules } from "../src/api/types.ts";
import { readSearch } from "../src/lib/search-params.ts";
import { api, open, recordingOf, settled, useBrowser } from "./browser.ts";

useBrowser();

let shop = "";
let deep = "";
beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
  deep = inject("mock") ? (await recordingOf("five")).id : shop;
});

const searchOf = (page: Page) => readSearch(new URL(page.url()).search);

async function names(page: Page): Promise<string[]> {
  return page
    .locator(".flame-chart .frame")
    .evaluateAll((frames) => frames.map((frame) => frame.getAttribute("data-name") ?? ""));
}

test("every width is the server's, and nothing is cut silently", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const answer = await api<Flamegraph>(
    `recordings/${shop}/flamegraph?metric=allocated&unit=bytes&width=1300&min_px=0.1&max_nodes=50000`,
  );
  // The items follow a moment after the picture.
  await expect.poll(() => page.locator(".flame-chart .frame").count()).toBeGreaterThan(3);
  const drawn = await page.locator(".flame-chart .frame").evaluateAll((frames) =>
    frames.map((frame) => ({
      row: Number(frame.id.replace("flame-", "")),
      width: frame.getBoundingClientRect().width,
      label: frame.getAttribute("aria-label") ?? "",
    })),
  );
  expect(await page.locator(".flame-chart").getAttribute("data-frames")).toBe(String(answer.rows.id.length));
  // Of a large graph the widest frames are there for readers of screens.
  expect(drawn.length).toBe(Math.min(100, answer.rows.id.length));
  const root = Math.max(...drawn.map((frame) => frame.width));
  expect(root).toBeGreaterThan(1000);
  for (const { row, width } of drawn) expect(width / root).toBeCloseTo((answer.rows.value[row] ?? 0) / answer.total, 3);
});

test("a click zooms; back and forward, Backspace, the way up", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const before = await names(page);
  const target = page.locator(".flame-chart .frame").nth(2);
  const name = await target.getAttribute("data-name");
  await target.click({ force: true });
  await expect.poll(() => searchOf(page).root).toBeDefined();
  const zoomed = searchOf(page).root;
  await settled(page);
  const chartWidth = () => page.locator(".flame-content").evaluate((one) => one.getBoundingClientRect().width);
  const width = () => target.evaluate((one) => one.getBoundingClientRect().width);
  await expect.poll(width).toBeCloseTo(await chartWidth(), 0);
  expect(await page.locator(".ancestors .here").getAttribute("title")).toBe(name);
  await page.goBack();
  await settled(page);
  await expect.poll(() => names(page)).toEqual(before);
  await expect.poll(width).toBeLessThan((await chartWidth()) - 5);
  await page.goForward();
  await settled(page);
  await expect.poll(width).toBeCloseTo(await chartWidth(), 0);
  await page.locator(".flame-chart").focus();
  // One right behind the other: the address of the first step comes with the next picture, and must not undo the second.
  await page.evaluate(() => {
    for (const key of ["Backspace", "Escape"])
      document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  });
  await page.waitForTimeout(300);
  await settled(page);
  expect(searchOf(page).root).toBeUndefined();
  await page.goBack();
  await expect.poll(() => searchOf(page).root).toBe(zoomed);
  await settled(page);
  await page.keyboard.press("Backspace");
  await expect.poll(() => searchOf(page).root).not.toBe(zoomed);
  await settled(page);
  await page.keyboard.press("Escape");
  await settled(page);
  await expect.poll(() => searchOf(page).root).toBeUndefined();
});

test("names survive many windows", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  for (const metric of ["Live", "Peak", "Leaked", "Freed", "Grown", "Temporary", "Allocated"]) {
    await page.locator(".filter-bar").getByText(metric, { exact: true }).click();
    await settled(page);
    const all = await names(page);
    if (all.length > 0) expect(all.filter((name) => name === "")).toEqual([]);
  }
  expect((await names(page)).length).toBeGreaterThan(3);
});

test("search lights matches, dims the rest, and says how much", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const all = await names(page);
  const wanted = all.find((name) => /^\w{5,}$/.test(name)) ?? "main";
  await page.keyboard.press("/");
  await page.keyboard.type(wanted);
  await expect.poll(() => searchOf(page).q).toBe(wanted);
  await expect.poll(() => page.locator(".flame-chart .frame[data-match]").count()).toBeGreaterThan(0);
  expect(await page.locator(".flame-chart .frame[data-dim]").count()).toBeGreaterThan(0);
  const asked = await api<Flamegraph>(
    `recordings/${shop}/flamegraph?metric=allocated&unit=bytes&focus=${encodeURIComponent(wanted === wanted.toLowerCase() ? `(?i)${wanted}` : wanted)}`,
  );
  const part =
    (asked.total / (await api<Flamegraph>(`recordings/${shop}/flamegraph?metric=allocated&unit=bytes`)).total) * 100;
  await expect
    .poll(async () => Number(/\(([\d.]+)%\)/.exec((await page.locator(".search-result").textContent()) ?? "")?.[1]))
    .toBeCloseTo(part, 0);
  await page.locator("input[type=search]").fill("(");
  await expect.poll(() => page.locator(".search .bad").count()).toBe(1);
  await page.locator("input[type=search]").press("Escape");
  await expect.poll(() => searchOf(page).q).toBeUndefined();
});

test("arrows walk, the details follow, Enter zooms, Shift+F10 has the menu", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const chart = page.locator(".flame-chart");
  await chart.focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  const active = await chart.getAttribute("aria-activedescendant");
  const element = page.locator(`#${active}`);
  expect(await element.getAttribute("aria-level")).toBe("3");
  const name = await element.getAttribute("data-name");
  expect(await page.locator(".details-name").textContent()).toContain(name?.slice(0, 20));
  await page.keyboard.press("Shift+F10");
  await page.getByRole("menuitem", { name: "Copy function name" }).click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toContain(name?.slice(0, 20));
  await chart.focus();
  await page.keyboard.press("Control+c");
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toMatch(/^#0 /);
  await page.keyboard.press("Enter");
  await expect.poll(() => searchOf(page).root).toBeDefined();
});

test("the menu focuses, a chip shows it, removing it brings the rest back", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const before = await page.locator(".ancestors .strong").textContent();
  await page.locator(".flame-chart .frame[aria-level='3']").first().click({ button: "right", force: true });
  await page.getByRole("menuitem", { name: /^Focus: only/ }).click();
  await settled(page);
  await expect.poll(() => page.locator(".chip").count()).toBe(1);
  expect(searchOf(page).filters?.focus).toBeDefined();
  await page.getByRole("button", { name: /Remove filter focus/ }).click();
  await settled(page);
  await expect.poll(() => page.locator(".ancestors .strong").textContent()).toBe(before);
});

test("inverted, upwards and collapsed", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const total = await page.locator(".ancestors .strong").textContent();
  const first = (await names(page))[1];
  await page.getByRole("button", { name: "Inverted" }).click();
  await settled(page);
  await expect.poll(async () => (await names(page))[1]).not.toBe(first);
  expect(await page.locator(".ancestors .strong").textContent()).toBe(total);
  await page.getByRole("button", { name: "Upwards" }).click();
  await expect.poll(() => searchOf(page).upwards).toBe(true);
});

test("two thousand frames of recursion: drawn, scrolled, collapsed", async () => {
  const page = await open(`/r/${deep}/flamegraph?metric=allocated&unit=count&focus=recurse`);
  await settled(page);
  await expect
    .poll(async () => Number(await page.locator(".flame-chart").getAttribute("data-frames")))
    .toBeGreaterThan(500);
  expect(await page.locator(".flame-chart").evaluate((chart) => chart.scrollHeight)).toBeGreaterThan(9000);
  await page.getByRole("button", { name: "Collapse recursion" }).click();
  await expect.poll(() => page.locator(".flame-chart .frame").count()).toBeLessThan(30);
});

test.each(["flamegraph", "calltree", "functions", "sites", "leaks", "allocations"])(
  "hostile names are text in %s",
  async (view) => {
    const page = await open(`/r/${shop}/${view}?metric=allocated`);
    await settled(page);
    const search = page.locator("input[type=search]");
    if ((await search.count()) > 0) {
      await search.fill("img src");
      await settled(page);
    }
    await page.mouse.move(640, 420);
    await page.waitForTimeout(200);
    expect(
      await page.evaluate(() => [document.querySelectorAll("img, script:not([src])").length, "hacked" in window]),
    ).toEqual([0, false]);
  },
);

test("a hostile name can be hovered, opened and filtered by", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated&q=img%20src`);
  await settled(page);
  const row = page.locator(".table-body [role=row]").first();
  await expect.poll(() => row.textContent()).toContain("<img src=x");
  await row.click({ button: "right" });
  await page.getByRole("menuitem", { name: /^Focus/ }).click();
  await settled(page);
  await expect.poll(() => page.locator(".table-body [role=row]").count()).toBeGreaterThan(0);
  await page.getByRole("link", { name: "Flame graph" }).click();
  await settled(page);
  const frame = page.locator(".flame-chart .frame[data-name*='<img src']").first();
  await frame.hover({ force: true });
  await expect.poll(() => page.locator(".frame-tip-name").textContent()).toContain("<img src=x");
  expect(await page.evaluate(() => document.querySelectorAll("img").length)).toBe(0);
});

test("a name of ten thousand characters stays in its row", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated&by=function&q=vector%7CRb_tree`);
  await settled(page);
  const row = page.locator(".table-body [role=row]").first();
  await expect.poll(() => row.count()).toBe(1);
  const box = await row.boundingBox();
  expect(box?.height).toBeLessThan(40);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(1280);
});

test.skipIf(inject("mock"))("the tooltip has the module's build id and the number of blocks", async () => {
  const { modules } = await api<Modules>(`recordings/${shop}/modules`);
  const module = modules.find(({ path }) => /\/shop$/.test(path));
  expect(module?.build_id).toMatch(/^[0-9a-f]{16,}$/);
  const known = await api<Functions>(
    `recordings/${shop}/functions?metric=allocated&by=function&search=%5Eimport_batch%24`,
  );
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  await page.locator(".flame-chart .frame[data-written*='import_batch']").first().hover({ force: true });
  const tip = page.locator(".frame-tip");
  await expect.poll(() => tip.textContent()).toContain(`build id ${module?.build_id}`);
  expect(known.rows[0]?.cum_other).toBe(200);
  expect(await tip.getByTestId("other-unit").textContent()).toBe("blocks200 blocks");
});

test("every view says how good the figures are", async () => {
  const info = await api<Info>(`recordings/${shop}`);
  for (const view of ["overview", "flamegraph", "sites", "recording"]) {
    const page = await open(`/r/${shop}/${view}`);
    await settled(page);
    const pill = page.locator(".pill.quality");
    await expect
      .poll(() => pill.textContent(), { message: view })
      .toMatch(/^(all named|[\d.<]+ ?% unnamed)( · [\d.<]+ ?% of stacks cut)? · waited [\d.<]+ ?%$/);
    expect((await pill.textContent())?.includes("of stacks cut")).toBe(info.recorder.truncated_stacks > 0);
    expect(await pill.getAttribute("title")).toContain("for the recorder");
    await page.close();
  }
});
