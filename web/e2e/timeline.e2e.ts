// The timeline: what it shows, the brush and its URL, instants, committed windows.
import type { Page } from "playwright-core";
import { beforeAll, expect, inject, test } from "vitest";
import type { Functions, Info, Timeline } from "../src/api/types.ts";
import { formatCount } from "../src/lib/format.ts";
import { readSearch } from "../src/lib/search-params.ts";
import { api, open, recordingOf, settled, useBrowser } from "./browser.ts";

useBrowser();

let shop = "";
beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
});

const searchOf = (page: Page) => readSearch(new URL(page.url()).search);

async function brush(page: Page, from: number, to: number): Promise<void> {
  const box = await page.locator(".timeline-surface").boundingBox();
  if (!box) throw new Error("no timeline");
  const x = (part: number) => box.x + 68 + part * (box.width - 90);
  await page.mouse.move(x(from), box.y + 40);
  await page.mouse.down();
  await page.mouse.move(x((from + to) / 2), box.y + 42, { steps: 4 });
  await page.mouse.move(x(to), box.y + 40, { steps: 4 });
  await page.mouse.up();
  await settled(page);
}

async function flameTotal(page: Page): Promise<string> {
  return (await page.locator(".ancestors .strong").textContent()) ?? "";
}

async function firstCells(page: Page): Promise<string[]> {
  return page
    .locator(".table-body [role=row]")
    .evaluateAll((rows) => rows.slice(0, 5).map((row) => row.textContent ?? ""));
}

test("time series are drawn", async () => {
  const page = await open(`/r/${shop}/overview`);
  await settled(page);
  const painted = await page.locator(".timeline canvas").evaluateAll((canvases) =>
    canvases.map((canvas) => {
      const context = (canvas as HTMLCanvasElement).getContext("2d");
      const { width, height } = canvas as HTMLCanvasElement;
      const data = context?.getImageData(80, 0, width - 80, height).data ?? [];
      let count = 0;
      for (let i = 3; i < data.length; i += 4) if ((data[i] ?? 0) > 0) count += 1;
      return count;
    }),
  );
  expect(painted.length).toBeGreaterThanOrEqual(2);
  for (const count of painted) expect(count).toBeGreaterThan(500);
  await expect.poll(() => page.locator(".readout").textContent()).toContain("peak");
});

test("a brushed window changes the flame graph and the table, is in the URL, survives reload, back and forward", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const whole = await flameTotal(page);
  await brush(page, 0.3, 0.5);
  const { window } = searchOf(page);
  expect(window).toBeDefined();
  const part = await flameTotal(page);
  expect(part).not.toBe(whole);

  await page.getByRole("link", { name: "Functions" }).click();
  await settled(page);
  const rows = await firstCells(page);
  const asked = await api<Functions>(
    `recordings/${shop}/functions?metric=allocated&unit=bytes&from=${window?.from}&to=${window?.to}&limit=1`,
  );
  expect(rows[0]).toContain(asked.rows[0]?.name.slice(0, 30));

  await page.reload();
  await settled(page);
  expect(searchOf(page).window).toEqual(window);
  expect(await firstCells(page)).toEqual(rows);

  await page.goBack();
  await settled(page);
  expect(await flameTotal(page)).toBe(part);
  await page.goBack();
  await settled(page);
  expect(searchOf(page).window).toBeUndefined();
  expect(await flameTotal(page)).toBe(whole);
  await page.goForward();
  await settled(page);
  expect(searchOf(page).window).toEqual(window);
  expect(await flameTotal(page)).toBe(part);
});

test("a drag is one entry in the history, made when it is let go", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const whole = await flameTotal(page);
  const before = page.url();
  const entries = await page.evaluate(() => history.length);
  const box = await page.locator(".timeline-surface").boundingBox();
  if (!box) throw new Error("no timeline");
  const x = (part: number) => box.x + 68 + part * (box.width - 90);
  await page.mouse.move(x(0.3), box.y + 40);
  await page.mouse.down();
  await page.mouse.move(x(0.5), box.y + 40, { steps: 5 });
  await expect.poll(() => flameTotal(page)).not.toBe(whole);
  expect(page.url()).toBe(before);
  await page.mouse.up();
  await settled(page);
  expect(searchOf(page).window).toBeDefined();
  expect(await page.evaluate(() => history.length)).toBe(entries + 1);
  // What is drawn is the window of the address.
  const { window } = searchOf(page);
  const { total } = await api<{ total: number }>(
    `recordings/${shop}/flamegraph?metric=allocated&from=${window?.from}&to=${window?.to}`,
  );
  const title = await page.locator(".details [title$='bytes']").last().getAttribute("title");
  expect(title?.replaceAll(",", "")).toBe(`${total} bytes`);
  await page.goBack();
  await settled(page);
  expect(await flameTotal(page)).toBe(whole);
});

test("the peak and the end are one click away", async () => {
  const page = await open(`/r/${shop}/flamegraph`);
  await settled(page);
  await page.getByRole("button", { name: "Peak", exact: true }).click();
  await settled(page);
  expect(searchOf(page).metric).toBe("peak");
  const info = await api<{ peak: { bytes: number } }>(`recordings/${shop}`);
  expect(await page.locator(".details").textContent()).toContain("100%");
  const title = await page.locator(".details [title$='bytes']").last().getAttribute("title");
  expect(title?.replaceAll(",", "")).toBe(`${info.peak.bytes} bytes`);
  await page.getByRole("button", { name: "End", exact: true }).click();
  await settled(page);
  expect(searchOf(page).metric).toBe("live");
});

test("a double click keeps the metric, and leaves one entry in the history", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated&window=0.2s-0.4s`);
  await settled(page);
  const entries = await page.evaluate(() => history.length);
  const box = await page.locator(".timeline-surface").boundingBox();
  if (!box) throw new Error("no timeline");
  await page.mouse.dblclick(box.x + box.width / 2, box.y + 20);
  await expect.poll(() => searchOf(page)).toEqual({ metric: "allocated" });
  expect(await page.evaluate(() => history.length)).toBe(entries + 1);
});

test("tracks fold, and a mark of one's own is drawn, listed and taken away", async () => {
  const page = await open(`/r/${shop}/recording?at=0.3s`);
  await settled(page);
  const height = () => page.locator(".timeline-surface").evaluate((surface) => surface.clientHeight);
  const before = await height();
  await page.getByRole("button", { name: "Resident" }).click();
  await expect.poll(height).toBeLessThan(before);
  expect(searchOf(page).folded).toEqual(["rss"]);
  await page.getByRole("button", { name: "+ Mark" }).click();
  await page.keyboard.type("after login");
  await page.keyboard.press("Enter");
  await expect.poll(() => page.locator(".flag[data-kind=note]").allTextContents()).toEqual(["after login"]);
  await page.reload();
  await settled(page);
  await expect.poll(() => page.locator("[data-generation]").count()).toBeGreaterThan(1);
  await page.getByRole("button", { name: "Remove the mark after login" }).click();
  await expect.poll(() => page.locator(".flag[data-kind=note]").count()).toBe(0);
});

test("a click chooses an instant, a double click everything", async () => {
  const page = await open(`/r/${shop}/flamegraph`);
  await settled(page);
  const box = await page.locator(".timeline-surface").boundingBox();
  if (!box) throw new Error("no timeline");
  await page.mouse.click(box.x + box.width / 2, box.y + 40);
  await settled(page);
  const { at } = searchOf(page);
  expect(at).toBeGreaterThan(0);
  await page.mouse.dblclick(box.x + box.width / 3, box.y + 40);
  await settled(page);
  await expect.poll(() => searchOf(page).at).toBeUndefined();
});

test("windows are committed and stack up; the crumbs lead back", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated`);
  await settled(page);
  await brush(page, 0.2, 0.8);
  await page.locator(".timeline-surface").press("Enter");
  await settled(page);
  const first = searchOf(page);
  expect(first.zoom).toHaveLength(1);
  expect(first.window).toBeUndefined();
  await brush(page, 0.25, 0.5);
  await page.getByRole("button", { name: "Zoom in" }).click();
  await settled(page);
  expect(searchOf(page).zoom).toHaveLength(2);
  await page.locator(".crumb button").first().click();
  await settled(page);
  expect(searchOf(page).zoom).toEqual(first.zoom);
  await page.locator(".crumbs button").first().click();
  await settled(page);
  expect(searchOf(page).zoom).toBeUndefined();
});

test("the keyboard does all of it", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const surface = page.locator(".timeline-surface");
  await surface.focus();
  await page.keyboard.press("Shift+ArrowRight");
  await page.keyboard.press("Shift+ArrowRight");
  await page.keyboard.press("Shift+ArrowRight");
  await expect.poll(() => searchOf(page).window).toBeDefined();
  const before = searchOf(page).window;
  await page.keyboard.press("ArrowLeft");
  await expect.poll(() => searchOf(page).window?.from).toBeLessThanOrEqual(before?.from ?? 0);
  await page.keyboard.press("+");
  await expect.poll(() => searchOf(page).shown).toBeDefined();
  const shown = searchOf(page).shown;
  await page.keyboard.press("PageDown");
  await expect.poll(() => searchOf(page).shown?.from).toBeGreaterThan(shown?.from ?? 0);
  await page.keyboard.press("0");
  await expect.poll(() => searchOf(page).shown).toBeUndefined();
  await page.keyboard.press("A");
  await page.keyboard.press("Shift+ArrowRight");
  await page.keyboard.press("B");
  await expect.poll(() => searchOf(page).b).toBeGreaterThan(searchOf(page).a ?? Number.POSITIVE_INFINITY);
  await expect.poll(() => page.locator(".flag[data-kind=a], .flag[data-kind=b]").count()).toBe(2);
  await page.keyboard.press("Enter");
  await expect.poll(() => searchOf(page).zoom?.length).toBe(1);
});

test("the wheel zooms about the pointer, shift and drag move sideways", async () => {
  const page = await open(`/r/${shop}/overview`);
  await settled(page);
  const box = await page.locator(".timeline-surface").boundingBox();
  if (!box) throw new Error("no timeline");
  await page.mouse.move(box.x + box.width / 2, box.y + 40);
  for (let i = 0; i < 5; i += 1) await page.mouse.wheel(0, -200);
  await expect.poll(() => searchOf(page).shown).toBeDefined();
  await settled(page);
  const { shown } = searchOf(page);
  await page.keyboard.down("Shift");
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 2 - 120, box.y + 40, { steps: 4 });
  await page.mouse.up();
  await page.keyboard.up("Shift");
  await expect.poll(() => searchOf(page).shown?.from).toBeGreaterThan(shown?.from ?? 0);
});

test("the exact values under the pointer are the server's, and threads have tracks on demand", async () => {
  const page = await open(`/r/${shop}/overview`);
  await settled(page);
  const asked = page.waitForResponse((response) => response.url().includes("live_count"));
  await page.getByRole("button", { name: "Blocks", exact: true }).click();
  const timeline = (await (await asked).json()) as Timeline;
  await settled(page);
  const box = await page.locator(".timeline-surface").boundingBox();
  if (!box) throw new Error("no timeline");
  await page.mouse.move(box.x + 68 + (box.width - 90) / 2, box.y + 40);
  const column = timeline.t_ns.findLastIndex((t) => t <= (timeline.from_ns + timeline.to_ns) / 2);
  const value = (name: string, at: number) => timeline.series.find((one) => one.name === name)?.last[at] ?? -1;
  const near = [column - 1, column, column + 1];
  const shown = () => page.locator(".readout [title$=bytes]").getAttribute("title");
  await expect.poll(shown).not.toBeNull();
  expect(near.map((at) => `${formatCount(value("live_bytes", at))} bytes`)).toContain(await shown());
  await page.locator(".timeline-side").getByRole("button", { name: "Threads" }).click();
  await settled(page);
  await expect.poll(() => page.locator(".track-name", { hasText: /^Thread/ }).count()).toBeGreaterThan(1);
});

test("two instants are compared", async () => {
  const page = await open(`/r/${shop}/compare`);
  await settled(page);
  await page.getByRole("button", { name: "A/B" }).click();
  await settled(page);
  const { a, b } = searchOf(page);
  // Not at the start, where there is nothing: everything would be new.
  expect(a).toBeGreaterThan(0);
  expect(b).toBeGreaterThan(a ?? 0);
  const grip = await page.locator("[data-grip=a]").boundingBox();
  if (!grip) throw new Error("no A");
  await page.mouse.move(grip.x + 5, grip.y + 5);
  await page.mouse.down();
  await page.mouse.move(grip.x + 200, grip.y + 5, { steps: 5 });
  await page.mouse.up();
  await expect.poll(() => searchOf(page).a).toBeGreaterThan(a ?? 0);
  expect(searchOf(page).b).toBe(b);
  await settled(page);
  expect(await page.locator(".table-body [role=row]").count()).toBeGreaterThan(0);
  await page.getByRole("group", { name: "Shown as" }).getByText("Flame graph").click();
  await settled(page);
  expect(searchOf(page).graph).toBe(true);
  expect(await page.locator(".flame-chart .frame").count()).toBeGreaterThan(0);
});

test.runIf(!inject("mock"))("marks and pauses of the recording are drawn, and reached by keys", async () => {
  const marked = (await recordingOf("marked")).id;
  const info = await api<Info>(`recordings/${marked}`);
  const page = await open(`/r/${marked}/flamegraph`);
  await settled(page);
  await expect.poll(() => page.locator(".flag[data-kind=mark]").allTextContents()).toEqual(["warm up", "steady state"]);
  // Where recording was off, the timeline says so, as wide as it was.
  const gap = page.locator(".timeline .gap", { hasText: "not recorded" });
  expect(await gap.count()).toBe(1);
  const [first, second] = info.captures;
  const surface = await page.locator(".timeline-surface").boundingBox();
  const box = await gap.boundingBox();
  const part = ((second?.from_ns ?? 0) - (first?.to_ns ?? 0)) / info.process.duration_ns;
  expect((box?.width ?? 0) / ((surface?.width ?? 1) - 90)).toBeCloseTo(part, 1);
  await page.keyboard.press("]");
  await page.keyboard.press("]");
  await expect.poll(() => searchOf(page).at).toBe(info.marks[1]?.t_ns);
  await page.keyboard.press("[");
  await expect.poll(() => searchOf(page).at).toBe(info.marks[0]?.t_ns);
});

test("a drag that goes on is answered while it goes on, by a server that is slower than the drag", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  await page.route("**/flamegraph?**", async (route) => {
    await new Promise((done) => setTimeout(done, 200));
    await route.continue().catch(() => undefined);
  });
  const drawn = () => page.locator(".flame-chart").evaluate((chart) => Number((chart as HTMLElement).dataset["drawn"]));
  const box = await page.locator(".timeline-surface").boundingBox();
  if (!box) throw new Error("there is no timeline");
  const x = (part: number) => box.x + 70 + part * (box.width - 94);
  const before = await drawn();
  await page.mouse.move(x(0.1), box.y + 40);
  await page.mouse.down();
  for (let i = 0; i < 60; i += 1) {
    await page.mouse.move(x(0.2 + i / 100), box.y + 40);
    await page.waitForTimeout(40);
  }
  expect((await drawn()) - before).toBeGreaterThan(3);
  await page.mouse.up();
});

test("a window that is let go is drawn at once with few frames, and then with all", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const whole = await flameTotal(page);
  const inFull: string[] = [];
  await page.route("**/flamegraph?**", async (route) => {
    const isInFull = new URL(route.request().url()).searchParams.get("max_nodes") !== "400";
    if (isInFull) {
      inFull.push(route.request().url());
      await new Promise((done) => setTimeout(done, 1500));
    }
    await route.continue().catch(() => undefined);
  });
  const box = await page.locator(".timeline-surface").boundingBox();
  if (!box) throw new Error("there is no timeline");
  await page.mouse.move(box.x + 70 + 0.2 * (box.width - 94), box.y + 40);
  await page.mouse.down();
  await page.mouse.move(box.x + 70 + 0.6 * (box.width - 94), box.y + 40, { steps: 3 });
  await page.mouse.up();
  // The picture of the window is here while the answer in full is on its way.
  await page.waitForFunction(
    () => document.querySelector("[data-refining]") && !document.querySelector(".flame-view > .answer[data-stale]"),
    undefined,
    { timeout: 1400 },
  );
  expect(await flameTotal(page)).not.toBe(whole);
  await settled(page);
  expect(inFull).toHaveLength(1);
  expect(await page.locator("[data-refining]").count()).toBe(0);
});
