// Transforms of the stacks, the table beside the graph, who freed what, and churn.
import type { Page } from "playwright-core";
import { beforeAll, expect, inject, test } from "vitest";
import type { Churn, Flamegraph } from "../src/api/types.ts";
import { readSearch } from "../src/lib/search-params.ts";
import { api, open, recordingOf, seriousFaults, settled, useBrowser } from "./browser.ts";

useBrowser();

const real = !inject("mock");
let shop = "";
beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
});

const searchOf = (page: Page) => readSearch(new URL(page.url()).search);
const frame = (page: Page, name: string) => page.locator(`.flame-items .frame[data-function="${name}"]`);
const total = (page: Page) => page.locator(".ancestors .strong").textContent();

/** The keyboard on the first frame of a function. */
async function goTo(page: Page, name: string): Promise<void> {
  await page.locator("input[type=search]").fill(`^${name}$`);
  await expect.poll(() => searchOf(page).q).toBe(`^${name}$`);
  await settled(page);
  await page.locator("input[type=search]").press("Enter");
  await expect.poll(() => page.locator(".details-name").textContent()).toBe(name);
  await page.locator(".flame-chart").focus();
}

test.runIf(real)("m merges, D drops, chips show both in order, and go one by one", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const whole = await total(page);
  await goTo(page, "session");
  await page.keyboard.press("m");
  await expect.poll(() => searchOf(page).filters?.transform).toMatch(/^merge-function:session@.*shop\.c@shop$/);
  await settled(page);
  await expect.poll(() => frame(page, "session").count()).toBe(0);
  expect(await total(page)).toBe(whole);
  await goTo(page, "cache_insert");
  await page.keyboard.press("D");
  await expect.poll(() => searchOf(page).filters?.transform?.split("\n").length).toBe(2);
  await settled(page);
  await expect.poll(() => total(page)).not.toBe(whole);
  const chips = page.locator(".filter-bar .chip");
  expect(await chips.allTextContents()).toEqual([
    expect.stringContaining("merge function session"),
    expect.stringContaining("drop function cache_insert"),
  ]);
  // The server's own count of the same.
  const asked = await api<Flamegraph>(
    `recordings/${shop}/flamegraph?metric=allocated&transform=${encodeURIComponent("drop-function:cache_insert")}`,
  );
  const every = await api<Flamegraph>(`recordings/${shop}/flamegraph?metric=allocated`);
  const through = await api<Flamegraph>(
    `recordings/${shop}/flamegraph?metric=allocated&transform=${encodeURIComponent("focus-function:cache_insert")}`,
  );
  expect(asked.total + through.total).toBe(every.total);
  expect(through.total).toBeGreaterThan(0);
  // In the address: another visit shows the same.
  const again = await open(new URL(page.url()).pathname + new URL(page.url()).search);
  await settled(again);
  expect(await total(again)).toBe(await total(page));
  await page.getByRole("button", { name: "Remove drop function cache_insert" }).click();
  await settled(page);
  await expect.poll(() => total(page)).toBe(whole);
  await page.getByRole("button", { name: "Remove merge function session" }).click();
  await expect.poll(() => searchOf(page).filters).toBeUndefined();
  await settled(page);
  await expect.poll(() => frame(page, "session").count()).toBeGreaterThan(0);
  expect(await seriousFaults(page)).toEqual([]);
});

test.runIf(real)("the menu has every transform with its key; focus on a subtree is what the frame held", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated&q=%5Esession%24`);
  await settled(page);
  const value = /, ([\d.]+ \w+),/.exec((await frame(page, "session").first().getAttribute("aria-label")) ?? "")?.[1];
  await frame(page, "session").first().click({ button: "right", force: true });
  const items = await page.getByRole("menuitem").allTextContents();
  for (const [label, key] of [
    ["Merge function", "m"],
    ["Merge this call only", "M"],
    ["Focus on function", "f"],
    ["Focus on subtree", "F"],
    ["Collapse function", "c"],
    ["Collapse module", "C"],
    ["Collapse recursion", "r"],
    ["Collapse direct recursion", "R"],
    ["Drop function", "D"],
  ] as const)
    expect(
      items.some((item) => item.startsWith(label) && item.endsWith(key)),
      label,
    ).toBe(true);
  await page.getByRole("menuitem", { name: /^Focus on subtree/ }).click();
  await settled(page);
  await expect.poll(() => total(page)).toBe(value);
  // The address has the frame's number alone; the chip says its function to another visitor, too.
  expect(searchOf(page).filters?.transform).toMatch(/^focus-subtree:\d+$/);
  const another = await open(new URL(page.url()).pathname + new URL(page.url()).search);
  for (const visit of [page, another])
    await expect
      .poll(() => visit.locator(".filter-bar .chip").allTextContents())
      .toEqual([expect.stringContaining("focus subtree session")]);
});

test.runIf(real)("recursion collapses over the whole tree, not over the part that was sent", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated&unit=count&focus=recurse`);
  await settled(page);
  const whole = await total(page);
  await page.getByRole("button", { name: "Collapse recursion" }).click();
  await settled(page);
  await expect.poll(() => frame(page, "recurse").count()).toBe(1);
  expect(await total(page)).toBe(whole);
  expect(await page.locator(".flame-items .frame[data-folded]").count()).toBe(0);
});

test.runIf(real)("a set of transforms is saved under a name and used again", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated&transform=merge-function%3Asession`);
  await settled(page);
  await page.getByRole("button", { name: "Presets" }).click();
  await page.getByRole("menuitem", { name: /^Save “merge function session” as/ }).click();
  await page.getByLabel("Name of the preset").fill("without sessions");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Remove merge function session" }).click();
  await expect.poll(() => searchOf(page).filters).toBeUndefined();
  await page.reload();
  await settled(page);
  await page.getByRole("button", { name: "Presets" }).click();
  await page.getByRole("menuitem", { name: "without sessions" }).first().click();
  await expect.poll(() => searchOf(page).filters?.transform).toBe("merge-function:session");
});

test.runIf(real)("graph and table side by side have one selection", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  await page.getByRole("button", { name: "Table", exact: true }).click();
  await expect.poll(() => searchOf(page).split).toBe(true);
  await settled(page);
  const row = page.locator(".flame-table [role=row]", { hasText: "cache_insert" }).first();
  await row.click();
  await expect.poll(() => searchOf(page).selected).toMatch(/^cache_insert@/);
  await expect.poll(() => frame(page, "cache_insert").first().getAttribute("data-selected")).toBe("");
  await expect.poll(() => page.locator(".flame-neighbours section").first().textContent()).toContain("session");
  // From the graph into the table.
  await frame(page, "session").first().click({ force: true });
  await expect.poll(() => searchOf(page).selected).toMatch(/^session@/);
  await settled(page);
  await expect
    .poll(() => page.locator(".flame-table [role=row][aria-selected=true]").textContent())
    .toContain("session");
  await expect.poll(() => page.locator(".flame-neighbours").textContent()).toContain("cache_insert");
  expect(await seriousFaults(page)).toEqual([]);
});

test.runIf(real)("what was freed, by the stacks that freed it", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=freed`);
  await settled(page);
  const whole = await total(page);
  await page.getByRole("button", { name: "By freeing stack" }).click();
  await expect.poll(() => searchOf(page).freeing).toBe(true);
  await settled(page);
  expect(await total(page)).toBe(whole);
  const asked = await api<Flamegraph>(`recordings/${shop}/flamegraph?metric=freed&freeing=true`);
  expect(asked.freeing).toBe(true);
  const names = new Set(asked.frames.map((one) => one.name));
  const drawn = await page.locator(".flame-items .frame").evaluateAll((all) => all.map((one) => one.dataset.function));
  for (const name of drawn) if (name) expect(names).toContain(name);
});

test.runIf(real)("churn: allocations a second, and the longest chain of reallocs", async () => {
  const page = await open(`/r/${shop}/churn`);
  await settled(page);
  const answer = await api<Churn>(`recordings/${shop}/churn`);
  expect(answer.rows.length).toBeGreaterThan(2);
  const first = page.locator(".table-body [role=row]").first();
  await expect.poll(() => first.textContent()).toContain(answer.rows[0]?.function.slice(0, 12));
  expect(await page.locator("[data-testid=churn]").textContent()).toContain(
    answer.total.allocations.count.toLocaleString("en-US"),
  );
  await page.getByRole("button", { name: "Moved", exact: true }).click();
  await expect.poll(() => searchOf(page).sort).toBe("moved");
  await settled(page);
  const list = answer.rows.find((row) => row.function === "grow_list");
  expect(list?.longest).toMatchObject({ reallocs: 12, first_bytes: 64, last_bytes: 262_144 });
  await expect.poll(() => first.textContent()).toMatch(/grow_list12 times, .* moved: 64 B → 256 KiB/);
  expect(await seriousFaults(page)).toEqual([]);
});
