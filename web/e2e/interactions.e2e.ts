// What the hand does: dragging, wheel and brush, what stays the same in the next session, what a slow server shows.
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import type { Page } from "playwright-core";
import { beforeAll, expect, inject, test } from "vitest";
import type { Flamegraph, Functions } from "../src/api/types.ts";
import { readSearch } from "../src/lib/search-params.ts";
import { api, base, open, recordingOf, settled, useBrowser } from "./browser.ts";

useBrowser();

const real = !inject("mock");
let shop = "";
beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
});

const searchOf = (page: Page) => readSearch(new URL(page.url()).search);
/** Left and right of the curves, inside the timeline. */
const LEFT = 68;
const RIGHT = 22;

async function surface(page: Page) {
  const box = await page.locator(".timeline-surface").boundingBox();
  if (!box) throw new Error("no timeline");
  return { ...box, at: (part: number) => box.x + LEFT + part * (box.width - LEFT - RIGHT) };
}

test("while the window is dragged the view already answers for it; Enter commits it", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const total = () => page.locator(".ancestors .strong").textContent();
  const whole = await total();
  const box = await surface(page);
  await page.mouse.move(box.at(0.2), box.y + 40);
  await page.mouse.down();
  await page.mouse.move(box.at(0.5), box.y + 40, { steps: 5 });
  // The button is still down.
  await expect.poll(total).not.toBe(whole);
  const during = await total();
  await page.mouse.move(box.at(0.3), box.y + 40, { steps: 5 });
  await expect.poll(total).not.toBe(during);
  await page.mouse.up();
  await settled(page);
  const { window } = searchOf(page);
  expect(window).toBeDefined();
  const asked = await api<Flamegraph>(
    `recordings/${shop}/flamegraph?metric=allocated&from=${window?.from}&to=${window?.to}`,
  );
  const shown = await page.locator(".details [title$=bytes]").last().getAttribute("title");
  expect(Number(shown?.replace(/[^\d]/g, ""))).toBe(asked.total);
  await page.keyboard.press("Enter");
  await expect.poll(() => searchOf(page).zoom).toEqual([window]);
});

test("the wheel leaves the instant under the pointer where it is", async () => {
  const page = await open(`/r/${shop}/overview`);
  await settled(page);
  const box = await surface(page);
  const instant = () => page.locator(".readout").first().textContent();
  await page.mouse.move(box.at(0.3), box.y + 40);
  await expect.poll(instant).toMatch(/ms|s/);
  for (let i = 0; i < 4; i += 1) await page.mouse.wheel(0, -200);
  await expect.poll(() => searchOf(page).shown).toBeDefined();
  await settled(page);
  const { shown } = searchOf(page);
  const duration = (await api<{ process: { duration_ns: number } }>(`recordings/${shop}`)).process.duration_ns;
  const under = (shown?.from ?? 0) + 0.3 * ((shown?.to ?? 0) - (shown?.from ?? 0));
  expect((shown?.to ?? 0) - (shown?.from ?? 0)).toBeLessThan(duration);
  expect(Math.abs(under - 0.3 * duration) / duration).toBeLessThan(0.02);
});

test("both instants can be dragged, and each stays itself", async () => {
  const page = await open(`/r/${shop}/compare?a=0.2s&b=0.4s`);
  await settled(page);
  const drag = async (grip: string, by: number) => {
    const box = await page.locator(`[data-grip=${grip}]`).boundingBox();
    if (!box) throw new Error(`no ${grip}`);
    await page.mouse.move(box.x + 5, box.y + 5);
    await page.mouse.down();
    await page.mouse.move(box.x + 5 + by, box.y + 5, { steps: 5 });
    await page.mouse.up();
    await settled(page);
  };
  await drag("b", 150);
  const first = searchOf(page);
  expect(first.a).toBe(200_000_000);
  expect(first.b).toBeGreaterThan(400_000_000);
  await drag("a", -60);
  expect(searchOf(page).a).toBeLessThan(200_000_000);
  expect(searchOf(page).b).toBe(first.b);
});

test("a module has one colour: in the next session, in another window, in another recording", async () => {
  const fills = async (address: string) => {
    const page = await open(address);
    await settled(page);
    await expect.poll(() => page.locator(".flame-chart .frame").count()).toBeGreaterThan(3);
    const pairs = await page
      .locator(".flame-chart .frame")
      .evaluateAll((frames) =>
        frames.map((frame): [string, string] => [
          frame.getAttribute("data-name") ?? "",
          frame.getAttribute("data-fill") ?? "",
        ]),
      );
    return new Map(pairs.filter(([name]) => /^[a-z_]+$/.test(name)));
  };
  // What nobody chose follows what the window holds: by module where no module has nearly everything, else by file.
  const first = await fills(`/r/${shop}/flamegraph?metric=allocated&color=module`);
  expect(new Set(first.values()).size).toBeGreaterThan(1);
  const others = [`/r/${shop}/flamegraph?metric=allocated&color=module&window=0.2s-0.7s`];
  if (real) others.push(`/r/${(await recordingOf("bazaar")).id}/flamegraph?metric=allocated&color=module`);
  for (const address of others) {
    const again = await fills(address);
    const common = [...again.keys()].filter((name) => first.has(name));
    expect(common.length).toBeGreaterThan(2);
    for (const name of common) expect(again.get(name), name).toBe(first.get(name));
  }
});

test.runIf(real)("matches inside of matches count once", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated&q=recurse`);
  await settled(page);
  const whole = await api<Flamegraph>(`recordings/${shop}/flamegraph?metric=allocated`);
  const part = await api<Flamegraph>(`recordings/${shop}/flamegraph?metric=allocated&focus=recurse`);
  // Two thousand frames of one stack match; their sum would be far more than everything.
  expect(part.total).toBeLessThan(whole.total);
  const percent = async () =>
    Number(/\(([\d.]+)%\)/.exec((await page.locator(".search-result").textContent()) ?? "")?.[1]);
  await expect.poll(percent).toBeCloseTo((100 * part.total) / whole.total, 0);
});

test("a patch that the mouse draws on the heat map filters what every other view asks for", async () => {
  const page = await open(`/r/${shop}/lifetimes`);
  await settled(page);
  const cells = page.locator(".heat-cell");
  const count = await cells.count();
  const from = await cells.nth(Math.floor(count * 0.4)).boundingBox();
  if (!from) throw new Error("no cell");
  await page.mouse.move(from.x + 2, from.y + 2);
  await page.mouse.down();
  await page.mouse.move(from.x + 80, from.y + 40, { steps: 6 });
  await page.mouse.up();
  await expect.poll(() => page.locator(".heat-cell[data-on]").count()).toBeGreaterThan(3);
  await page.getByRole("button", { name: "Filter every view by it" }).click();
  await settled(page);
  const filters = searchOf(page).filters ?? {};
  expect(Object.keys(filters).length).toBeGreaterThanOrEqual(2);
  for (const [name, document] of [
    ["Flame graph", "flamegraph"],
    ["Call tree", "flamegraph"],
    ["Functions", "functions"],
    ["Sites", "sites"],
    ["Leaks", "leaks"],
    ["Allocations", "allocations"],
    ["Threads", "threads"],
    ["Overview", "functions"],
  ] as const) {
    const asked = page.waitForRequest((request) => {
      const url = new URL(request.url());
      return url.pathname.endsWith(`/${document}`) && Object.keys(filters).every((key) => url.searchParams.has(key));
    });
    // The flame graph's answer serves the call tree as well.
    if (name === "Call tree") asked.catch(() => undefined);
    await page.getByRole("link", { name, exact: true }).click();
    if (name !== "Call tree") await asked;
    await settled(page);
    expect(searchOf(page).filters, name).toEqual(filters);
    expect(await page.locator(".chip").count(), name).toBe(Object.keys(filters).length);
  }
});

test("filters travel in the link: who opens it sees the same", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated`);
  await settled(page);
  await page.locator(".table-body [role=row]").nth(1).click({ button: "right" });
  await page.getByRole("menuitem", { name: /^Ignore/ }).click();
  await settled(page);
  await page.getByRole("button", { name: "Copy link" }).click();
  const link = await page.evaluate(() => navigator.clipboard.readText());
  const rows = (one: Page) => one.locator(".table-body [role=row]").allTextContents();
  // Another browser, with nothing kept.
  const other = await open(link.slice(new URL(link).origin.length));
  await settled(other);
  expect(await other.locator(".chip").textContent()).toContain("ignore");
  expect(await rows(other)).toEqual(await rows(page));
});

test("a stack, a function and a link are copied", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  for (const [item, text] of [
    ["Copy function name", /^\S+/],
    ["Copy stack", /^#0 .*\n#1 /],
    ["Copy link to this view", /^http.*flamegraph\?metric=allocated/],
  ] as const) {
    await page.locator(".flame-chart .frame[aria-level='4']").first().click({ button: "right", force: true });
    await page.getByRole("menuitem", { name: new RegExp(`^${item}`) }).click();
    await expect.poll(copied).toMatch(text);
  }
});

test.runIf(real)("exports are of the window, the metric and the filter on the screen", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated&window=0.2s-0.9s&ignore=recurse&by=module`);
  await settled(page);
  const saved = async (label: RegExp) => {
    await page.getByRole("button", { name: "Export" }).click();
    const waiting = page.waitForEvent("download");
    await page.getByRole("menuitem", { name: label }).click();
    return readFileSync(await (await waiting).path());
  };
  const query = "metric=allocated&from=200000000&to=900000000&ignore=recurse";
  const asked = await api<Flamegraph>(`recordings/${shop}/flamegraph?${query}`);
  const folded = (await saved(/^Folded/)).toString();
  const sum = folded
    .trim()
    .split("\n")
    .reduce((all, line) => all + Number(line.slice(line.lastIndexOf(" ") + 1)), 0);
  expect(sum).toBe(asked.total);
  expect(folded).not.toContain("recurse");
  const speedscope = JSON.parse((await saved(/^speedscope/)).toString()) as { profiles: { weights: number[] }[] };
  // One profile for each thing that can be measured.
  const sums = speedscope.profiles.map(({ weights }) => weights.reduce((all, weight) => all + weight, 0));
  expect(sums).toContain(asked.total);
  expect(gunzipSync(await saved(/^pprof/)).includes("session")).toBe(true);
  const view = JSON.parse((await saved(/^What this view shows/)).toString()) as Functions;
  const table = await api<Functions>(`recordings/${shop}/functions?${query}&by=module`);
  expect(view.by).toBe("module");
  expect([view.total, view.rows]).toEqual([table.total, table.rows]);
});

test("a function selected in one view is lit in the others", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated`);
  await settled(page);
  const row = page.locator(".table-body [role=row]", { hasText: real ? "cache_insert" : "" }).first();
  await row.click();
  await expect.poll(() => searchOf(page).selected).toBeTruthy();
  const { selected } = searchOf(page);
  await page.getByRole("link", { name: "Flame graph" }).click();
  await settled(page);
  await expect.poll(() => page.locator(".flame-chart .frame[data-selected]").count()).toBeGreaterThan(0);
  expect(await page.locator(".flame-chart .frame[data-selected]").first().getAttribute("data-name")).toBe(
    selected?.split("@")[0],
  );
  for (const view of ["Call tree", "Sites", "Leaks"]) {
    await page.getByRole("link", { name: view, exact: true }).click();
    await settled(page);
    expect(searchOf(page).selected).toBe(selected);
    if (real) {
      const lit = page.locator(".table-body [role=row]:is([data-lit], [aria-selected=true])");
      await expect.poll(() => lit.count(), { message: view }).toBeGreaterThan(0);
    }
  }
});

test("a slow server: within a tenth of a second the page shows that it waits", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated`);
  await settled(page);
  await page.route("**/api/v1/recordings/*/**", async (route) => {
    await new Promise((done) => setTimeout(done, 1200));
    await route.continue().catch(() => undefined);
  });
  const waitsAfter = (label: string) =>
    page.evaluate(async (text) => {
      const link = [...document.querySelectorAll<HTMLElement>(".tabs a, .filter-bar label")].find(
        (one) => one.textContent?.trim() === text,
      );
      const begin = performance.now();
      const control = link?.querySelector("input") ?? link;
      control?.click();
      for (;;) {
        await new Promise((done) => requestAnimationFrame(done));
        if (document.querySelector("[data-stale], .skeleton")) return performance.now() - begin;
        if (performance.now() - begin > 5000) return Number.POSITIVE_INFINITY;
      }
    }, label);
  const changed = await waitsAfter("Peak");
  const other = await waitsAfter("Sites");
  // A busy machine may be slow; the goal is 100 ms.
  expect(Math.max(changed, other)).toBeLessThan(500);
  await settled(page);
  await page.unroute("**/api/v1/recordings/*/**");
  expect(page.url().startsWith(base())).toBe(true);
});

test("every view can be reached at any width: what the row has no room for is in a menu", async () => {
  const page = await open(`/r/${shop}/overview`);
  await settled(page);
  const links = page.locator(".tabs a");
  const names = await links.allTextContents();
  const more = page.locator(".tabs-more");
  for (const width of [1920, 1280, 1024, 390, 320]) {
    await page.setViewportSize({ width, height: 800 });
    const inside = () =>
      page.locator(".tabs").evaluate((nav) => {
        const { left, right } = nav.getBoundingClientRect();
        const seen = [...nav.querySelectorAll("a, button")].filter(
          (one) => getComputedStyle(one).visibility === "visible",
        );
        return seen.every((one) => {
          const box = one.getBoundingClientRect();
          return box.left >= left - 0.5 && box.right <= right + 0.5;
        });
      });
    const seen = () =>
      links.evaluateAll((all) => all.filter((one) => getComputedStyle(one).visibility === "visible").length);
    // While the row is measured nothing is seen; the button's own width comes a picture later, and may take another link's
    // room.
    let shown = 0;
    const atRest = async () => {
      const before = shown;
      shown = await seen();
      return shown === before && shown > 1 && (await inside());
    };
    await expect.poll(atRest, { message: String(width) }).toBe(true);
    if (shown === names.length) {
      expect(await more.isVisible()).toBe(false);
      continue;
    }
    await more.click();
    expect(await page.getByRole("menuitem").allTextContents()).toEqual(names.slice(shown));
    await page.keyboard.press("Escape");
  }
  // The view that is open is named, wherever its link is.
  await more.click();
  await page.getByRole("menuitem", { name: "Recording" }).click();
  await settled(page);
  expect(page.url()).toContain("/recording");
  await expect.poll(() => more.textContent()).toContain("Recording");
  expect(await more.getAttribute("aria-current")).toBe("page");
});
