// No view is wider than the screen, from a large window to a telephone.
import type { Page } from "playwright-core";
import { beforeAll, expect, test } from "vitest";
import { VIEWS } from "../src/lib/search-params.ts";
import { open, recordingOf, settled, useBrowser } from "./browser.ts";

useBrowser();
let shop = "";
let bazaar = "";
let marked = "";
beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
  bazaar = (await recordingOf("bazaar")).id;
  marked = (await recordingOf("marked")).id;
});

const WIDTHS = [1440, 1024, 390, 320];

const tooWide = (page: Page): Promise<number> =>
  page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

/** Words for readers of screens that lie outside of what scrolls them: in Firefox they make the page wider. */
const strayWords = (page: Page): Promise<string[]> =>
  page.locator(".visually-hidden").evaluateAll((all) =>
    all.flatMap((one) => {
      let scroller = one.parentElement;
      while (scroller && getComputedStyle(scroller).overflowX === "visible") scroller = scroller.parentElement;
      const block = one instanceof HTMLElement ? one.offsetParent : null;
      const isInside = !scroller || scroller === document.body || (block !== null && scroller.contains(block));
      return isInside ? [] : [one.textContent ?? ""];
    }),
  );

test("no view scrolls sideways", async () => {
  const faults: string[] = [];
  for (const width of WIDTHS) {
    const page = await open("/", { width, height: 800 });
    const paths = [
      ...VIEWS.map((view) => `/r/${shop}/${view}`),
      `/r/${marked}/overview`,
      `/r/${marked}/recording`,
      `/r/${shop}/compare?other=${bazaar}&metric=peak`,
      `/r/${shop}/compare?other=${bazaar}&metric=peak&graph=1`,
      `/r/${shop}/flamegraph?split=1`,
      `/r/${shop}/flamegraph?sandwich=main`,
      `/r/${shop}/functions?metric=allocated&focus=.&ignore=zzz&hide=a_rather_long_pattern_of_a_filter&min_size=16`,
      `/r/${shop}/functions?q=nothing_is_called_so`,
      "/r/r99/overview",
    ];
    for (const path of paths) {
      await page.goto(new URL(path, page.url()).href);
      if (!path.includes("r99")) await settled(page);
      const extra = await tooWide(page);
      if (extra > 0) faults.push(`${path} is ${width + extra} pixels wide at ${width}`);
      if (width === 390) for (const word of await strayWords(page)) faults.push(`${path}: “${word}” is not clipped`);
    }
  }
  expect(faults).toEqual([]);
}, 300_000);

test("at 1024 pixels tables without a panel show all columns, and the readout all figures", async () => {
  const page = await open(`/r/${shop}/functions`, { width: 1024, height: 700 });
  for (const view of ["functions", "threads", "churn"]) {
    await page.goto(new URL(`/r/${shop}/${view}?metric=allocated`, page.url()).href);
    await settled(page);
    const more = await page.locator(".table").evaluate((one) => one.scrollWidth - one.clientWidth);
    expect([view, more]).toEqual([view, 0]);
    const [first, all] = await page.locator(".readout").evaluate((one) => {
      const left = one.firstElementChild?.getBoundingClientRect().left ?? 0;
      return [left - one.getBoundingClientRect().left, one.scrollWidth - one.clientWidth];
    });
    expect(first).toBeGreaterThanOrEqual(0);
    expect(all).toBeLessThanOrEqual(0);
  }
});

test("at 1024 pixels the figures of the peak are whole, however much is said about their quality", async () => {
  const page = await open("/", { width: 1024, height: 700 });
  await page.route(`**/api/v1/recordings/${shop}`, async (route) => {
    const response = await route.fetch();
    const body = await response.json();
    const stacks = { ...body.recorder.stacks, total: 100_000_000 };
    const recorder = { ...body.recorder, stacks, truncated_stacks: 3, wait_ns: 4000 * body.process.duration_ns };
    await route.fulfill({ response, json: { ...body, recorder } });
  });
  await page.goto(new URL(`/r/${shop}/sites`, page.url()).href);
  await settled(page);
  await expect.poll(() => page.locator(".pill.quality").textContent()).toMatch(/stacks cut · 4,000 threads waiting/);
  const cut = await page.locator(".readout").evaluate((one) => one.scrollWidth - one.clientWidth);
  expect(cut).toBeLessThanOrEqual(0);
  const [pill, readout] = await Promise.all(
    [".pill.quality", ".readout"].map((selector) => page.locator(selector).boundingBox()),
  );
  expect((pill?.x ?? 0) + (pill?.width ?? 0)).toBeLessThanOrEqual(readout?.x ?? 0);
  expect(pill?.width).toBeGreaterThanOrEqual(80);
});

test("a table that goes on to the right fades there, on every screen, and not where it ends", async () => {
  for (const width of [1024, 390]) {
    const page = await open(`/r/${shop}/leaks`, { width, height: 700 });
    await settled(page);
    const edge = (left: number) =>
      page.locator(".table").evaluate(async (one, to) => {
        one.scrollLeft = to;
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        return { more: one.scrollWidth - one.clientWidth, mask: getComputedStyle(one).maskImage };
      }, left);
    const first = await edge(0);
    expect(first.more).toBeGreaterThan(0);
    expect(first.mask, `at ${width}`).toMatch(/rgba\(0, 0, 0, 0\.\d+\)/);
    expect((await edge(first.more)).mask, `at ${width}`).not.toMatch(/rgba\(0, 0, 0, 0\.[0-8]/);
  }
});

test("the list of recordings fits, whatever their number and names", async () => {
  for (const width of WIDTHS) {
    const page = await open("/", { width, height: 800 });
    await page.route("**/api/v1/recordings", async (route) => {
      const response = await route.fetch();
      const body = await response.json();
      const made = body.recordings.flatMap((known: { id: string; name: string; title: string }) =>
        ["", "a-service-with-a-long-name-in-production-20261124-", "x".repeat(80)].map((more) => ({
          ...known,
          name: `memory-${more}${known.name}`,
          title: `${more}${known.title}`,
        })),
      );
      const broken = { ...made[0], state: "failed", error: "cannot open it: this is not a recording (wrong magic)" };
      // Every address of a recording names the same few: keys are of no concern here.
      await route.fulfill({ response, json: { ...body, recordings: [...made, broken] } });
    });
    await page.reload();
    await expect.poll(() => page.locator(".recordings tbody tr").count()).toBeGreaterThan(9);
    await expect.poll(() => page.locator(".recordings").textContent()).toContain("MiB");
    expect([width, await tooWide(page)]).toEqual([width, 0]);
    const inner = await page.locator(".lobby").evaluate((one) => one.scrollWidth - one.clientWidth);
    expect([width, inner]).toEqual([width, 0]);
    // The first thing to know, and the way in, need no scrolling.
    const cut = await page
      .locator(".recordings td:visible")
      .evaluateAll((all) => all.filter((one) => one.getBoundingClientRect().right > innerWidth).length);
    expect([width, cut]).toEqual([width, 0]);
  }
}, 120_000);
