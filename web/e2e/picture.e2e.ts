// The flame graph that the terminal program draws: one SVG file that zooms and searches without a network.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { beforeAll, expect, inject, test } from "vitest";
import { openFile, recordingOf, useBrowser } from "./browser.ts";

useBrowser();

let file = "";
beforeAll(async () => {
  if (inject("mock")) return;
  await recordingOf("shop");
  file = join(inject("folder"), "shop.svg");
  const words = ["flamegraph", "--metric", "allocated", "memory-shop.dat", "-o", file];
  const drawn = spawnSync(inject("heaptrace"), words, { cwd: inject("folder"), encoding: "utf8" });
  if (drawn.status !== 0) throw new Error(drawn.stderr);
});

const shown = (page: Page) => page.locator(".f:visible").count();
const frame = (page: Page, name: string) => page.locator(".f", { has: page.locator(`title:text("${name}")`) }).first();
const rectWidth = async (page: Page, name: string) =>
  Number(await frame(page, name).locator("rect").getAttribute("width"));

test.skipIf(inject("mock"))("a click zooms, Escape and the button lead back", async () => {
  const page = await openFile(file);
  const all = await shown(page);
  expect(all).toBeGreaterThan(5);
  const whole = await rectWidth(page, "all — ");
  const narrow = await page.evaluate(() => {
    const frames = Array.from(document.querySelectorAll<SVGGElement>(".f"));
    const chosen = frames.find((one) => Number(one.dataset["w"]) < 0.6 && Number(one.dataset["w"]) > 0.02);
    return chosen?.querySelector("title")?.textContent?.split(" — ")[0] ?? "";
  });
  expect(narrow).not.toBe("");
  expect(await rectWidth(page, `${narrow} — `)).toBeLessThan(whole);
  await frame(page, `${narrow} — `).locator("rect").click();
  expect(await rectWidth(page, `${narrow} — `)).toBeCloseTo(whole, 0);
  expect(await shown(page)).toBeLessThan(all);
  await page.keyboard.press("Escape");
  expect(await shown(page)).toBe(all);
  await frame(page, `${narrow} — `).locator("rect").click();
  await page.locator("#reset").click();
  expect(await shown(page)).toBe(all);
});

test.skipIf(inject("mock"))("search lights matches and says how much they hold", async () => {
  const page = await openFile(file);
  const ask = (pattern: string) => {
    page.once("dialog", (dialog) => void dialog.accept(pattern));
    return page.locator("#search").click();
  };
  await ask("^all$");
  expect(await page.locator("#matched").textContent()).toBe("matched: 100.00%");
  await page.locator("#search").click();
  expect(await page.locator("#matched").textContent()).toBe("");
  await ask("main");
  expect(await page.locator(".f.match").count()).toBeGreaterThan(0);
  const part = Number((await page.locator("#matched").textContent())?.match(/([\d.]+)%/)?.[1]);
  expect(part).toBeGreaterThan(0);
  expect(part).toBeLessThanOrEqual(100);
  await page.locator("#search").click();
  // What is no regular expression is looked for as it is.
  await ask("(");
  expect(await page.locator("#matched").textContent()).toMatch(/^matched: [\d.]+%$/);
});
