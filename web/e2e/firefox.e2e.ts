// The page in Firefox: every view on a screen and a telephone, and the gestures that engines treat differently.
import type { Page } from "puppeteer-core";
import { beforeAll, expect, inject, test } from "vitest";
import { readSearch, VIEWS } from "../src/lib/search-params.ts";
import { recordingOf } from "./browser.ts";
import { answered, inFirefox, useFirefox } from "./firefox.ts";

useFirefox();
const real = !inject("mock");
let shop = "";
beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
});

const searchOf = (page: Page) => readSearch(new URL(page.url()).search);

const boxOf = async (page: Page, selector: string) => {
  const box = await (await page.waitForSelector(selector))?.boundingBox();
  if (!box) throw new Error(`no ${selector}`);
  return box;
};

test("every view answers, fits and says nothing in the console, on a screen and a telephone", async () => {
  const faults: string[] = [];
  const looks = [
    ["dark", 1440],
    ["light", 390],
  ] as const;
  for (const [theme, width] of looks) {
    await inFirefox(`/r/${shop}/overview`, { theme, width }, async (page) => {
      expect(await page.evaluate(() => document.documentElement.dataset["theme"])).toBe(theme);
      for (const view of VIEWS) {
        await page.goto(new URL(`/r/${shop}/${view}`, page.url()).href);
        await answered(page);
        const extra = await page.evaluate(
          () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
        );
        if (extra > 0) faults.push(`${view} is ${extra} pixels too wide at ${width}`);
      }
    });
  }
  expect(faults).toEqual([]);
}, 180_000);

test("a drag over the timeline, the wheel, a zoom and the way back", async () => {
  await inFirefox(`/r/${shop}/flamegraph?metric=allocated`, {}, async (page) => {
    const total = () => page.$eval(".ancestors .strong", (one) => one.textContent);
    const whole = await total();
    const timeline = await boxOf(page, ".timeline-surface");
    const x = (part: number) => timeline.x + 68 + part * (timeline.width - 90);
    await page.mouse.move(x(0.3), timeline.y + 40);
    await page.mouse.down();
    await page.mouse.move(x(0.4), timeline.y + 42, { steps: 3 });
    await page.mouse.move(x(0.5), timeline.y + 40, { steps: 3 });
    // The button is still down.
    await expect.poll(total, { timeout: 15_000 }).not.toBe(whole);
    await page.mouse.up();
    await expect.poll(() => searchOf(page).window).toBeDefined();
    await page.mouse.move(x(0.5), timeline.y + 40);
    await page.mouse.wheel({ deltaY: -300 });
    await expect.poll(() => searchOf(page).shown).toBeDefined();
    await answered(page);
    const frame = await boxOf(page, ".flame-items .frame[aria-level='3']");
    await page.mouse.click(frame.x + 8, frame.y + frame.height / 2);
    await expect.poll(() => searchOf(page).root).toBeDefined();
    await page.goBack();
    await expect.poll(() => searchOf(page).root).toBeUndefined();
  });
});

test("keys: zoom and pan of the graph, a view by its letter, the search", async () => {
  await inFirefox(`/r/${shop}/flamegraph?metric=allocated`, {}, async (page) => {
    const view = () => page.$eval(".flame-chart", (chart) => (chart as HTMLElement).dataset["view"]);
    await page.focus(".flame-chart");
    const whole = await view();
    await page.keyboard.press("w");
    await expect.poll(view).not.toBe(whole);
    await page.keyboard.press("0");
    await expect.poll(view).toBe(whole);
    await page.keyboard.press("g");
    await page.keyboard.press("l");
    await expect.poll(() => new URL(page.url()).pathname).toMatch(/leaks$/);
    await answered(page);
    await page.keyboard.press("/");
    await page.keyboard.type("cache");
    await expect.poll(() => searchOf(page).q).toBe("cache");
  });
});

test.runIf(real)("the canvas has the colours of the frames", async () => {
  await inFirefox(`/r/${shop}/flamegraph?metric=allocated`, { theme: "dark" }, async (page) => {
    const colours = await page.$eval(".flame-frames", (one) => {
      const canvas = one as HTMLCanvasElement;
      const data = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height).data ?? [];
      const seen = new Set<number>();
      for (let i = 0; i + 3 < data.length; i += 4 * 97)
        if ((data[i + 3] ?? 0) > 0) seen.add(((data[i] ?? 0) << 16) | ((data[i + 1] ?? 0) << 8) | (data[i + 2] ?? 0));
      return seen.size;
    });
    expect(colours).toBeGreaterThan(3);
  });
});

test.each(["flamegraph?metric=allocated", "memory"])("%s is printed light, as wide as a sheet", async (view) => {
  await inFirefox(`/r/${shop}/${view}`, { theme: "dark", width: 1440 }, async (page) => {
    // Firefox copies the page when the event is over: what is there then is on the sheet.
    await page.evaluate(() => {
      const faults: string[] = ["was not printed"];
      Object.assign(window, { faults });
      window.addEventListener("beforeprint", () => {
        faults.length = 0;
        if (document.documentElement.dataset["theme"] !== "light") faults.push("the sheet is dark");
        const canvases = [...document.querySelectorAll<HTMLCanvasElement>(".flame-frames, .time-chart canvas")];
        if (canvases.length < 2) faults.push(`${canvases.length} canvases`);
        for (const canvas of canvases) {
          const name = canvas.className || "chart";
          const width = canvas.width / devicePixelRatio;
          if (width > 718) faults.push(`${name} is ${width} pixels wide`);
          const drawn = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height).data;
          const colors = new Set(new Uint32Array(drawn?.buffer ?? new ArrayBuffer()));
          if (colors.size < 20) faults.push(`${name} shows ${colors.size} colours`);
        }
      });
    });
    await page.pdf({ format: "A4" });
    expect(await page.evaluate(() => (window as unknown as { faults: string[] }).faults)).toEqual([]);
    // Afterwards the screen is as it was.
    await page.waitForFunction(() => document.documentElement.dataset["theme"] === "dark");
    await page.waitForFunction(() => [...document.querySelectorAll("canvas")].some((one) => one.clientWidth > 1000));
  });
});
