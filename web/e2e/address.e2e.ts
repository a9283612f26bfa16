// What the reader opened and selected is in the address: a link, a reload and the browser's history bring it back.
import type { Page } from "playwright-core";
import { beforeAll, expect, test } from "vitest";
import { open, recordingOf, settled, useBrowser } from "./browser.ts";

useBrowser();
let shop = "";
let bazaar = "";

beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
  bazaar = (await recordingOf("bazaar")).id;
});

const lines = (page: Page) =>
  page
    .locator(".calltree [data-index]")
    .evaluateAll((rows) =>
      rows
        .sort((a, b) => Number((a as HTMLElement).dataset["index"]) - Number((b as HTMLElement).dataset["index"]))
        .map((row) => `${row.getAttribute("aria-level")} ${row.getAttribute("aria-expanded")} ${row.textContent}`),
    );
const parameter = (page: Page, name: string) => new URL(page.url()).searchParams.get(name);

test("the call tree's open lines and its selected line survive a link", async () => {
  const page = await open(`/r/${shop}/calltree?metric=allocated`);
  await settled(page);
  const before = await lines(page);
  // Close the root, open it again, and open the first closed line below it.
  await page.locator(".calltree [data-index='0']").focus();
  await page.keyboard.press("ArrowLeft");
  await expect.poll(() => lines(page).then((all) => all.length)).toBe(1);
  expect(parameter(page, "open")).not.toBeNull();
  const closed = page.url();
  await page.keyboard.press("ArrowRight");
  await expect.poll(() => lines(page)).toEqual(before);
  const twisty = page.locator(".calltree [aria-expanded='false'] .twisty").first();
  await twisty.click();
  await expect.poll(() => lines(page).then((all) => all.length)).toBeGreaterThan(before.length);
  const row = page.locator(".calltree .table-row[data-index='2']");
  await row.click();
  await expect.poll(() => parameter(page, "row")).not.toBeNull();
  const opened = await lines(page);

  const other = await open(page.url().replace(/^https?:\/\/[^/]+/, ""));
  await settled(other);
  expect(await lines(other)).toEqual(opened);
  expect(await other.locator(".calltree .table-row[data-index='2']").getAttribute("tabindex")).toBe("0");
  const shut = await open(closed.replace(/^https?:\/\/[^/]+/, ""));
  await settled(shut);
  expect((await lines(shut)).length).toBe(1);
});

test("everything open is one sign in the address, and a smaller rest that was loaded is there, too", async () => {
  const page = await open(`/r/${shop}/calltree?metric=allocated`);
  await settled(page);
  await page.locator(".calltree [data-index='0']").focus();
  await page.keyboard.press("*");
  await expect.poll(() => parameter(page, "open")).toBe("*");
  const all = await lines(page);
  await page.reload();
  await settled(page);
  expect(await lines(page)).toEqual(all);
});

test("the selected row of a comparison survives a link, whatever the order of the rows", async () => {
  const page = await open(`/r/${shop}/compare?other=${bazaar}&metric=allocated`);
  await settled(page);
  await page.locator(".table-body .table-row").nth(2).click();
  await expect.poll(() => parameter(page, "row")).not.toBeNull();
  const title = await page.locator("aside.side h2").textContent();
  const stack = await page.locator("aside.side .stack").textContent();
  const other = await open(`${page.url().replace(/^https?:\/\/[^/]+/, "")}&sort=before`);
  await settled(other);
  expect(await other.locator("aside.side h2").textContent()).toBe(title);
  expect(await other.locator("aside.side .stack").textContent()).toBe(stack);
  expect(await other.locator(".table-body .table-row[aria-selected=true]").count()).toBe(1);
});

test("the selected block of the allocations survives a link", async () => {
  const page = await open(`/r/${shop}/allocations?sort=size`);
  await settled(page);
  await page.locator(".table-body .table-row").nth(3).click();
  await expect.poll(() => parameter(page, "row")).not.toBeNull();
  const title = await page.locator("aside.side h2").textContent();
  await page.reload();
  await settled(page);
  expect(await page.locator("aside.side h2").textContent()).toBe(title);
});
