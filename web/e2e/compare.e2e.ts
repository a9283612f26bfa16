// Two recordings side by side: the table with both numbers, and the flame graph of the difference.
import { beforeAll, expect, inject, test } from "vitest";
import type { Diff, DiffFlamegraph, Info } from "../src/api/types.ts";
import { formatBytes } from "../src/lib/format.ts";
import { fileName } from "../src/lib/names.ts";
import { readSearch } from "../src/lib/search-params.ts";
import { writeWindow } from "../src/lib/time.ts";
import { api, open, recordingOf, seriousFaults, settled, useBrowser } from "./browser.ts";

useBrowser();

const real = !inject("mock");
let shop = "";
let bazaar = "";
beforeAll(async () => {
  if (!real) return;
  shop = (await recordingOf("shop")).id;
  bazaar = (await recordingOf("bazaar")).id;
});

test.runIf(real)("the list of recordings leads to a comparison", async () => {
  const page = await open("/");
  // Each row has the numbers that tell recordings apart.
  const info = await api<Info>(`recordings/${shop}`);
  const row = page.locator("table.recordings tbody tr").filter({ hasText: fileName(info.process.executable) });
  await expect.poll(() => row.first().textContent()).toContain(formatBytes(info.peak.bytes));
  await page
    .getByRole("link", { name: /^Compare/ })
    .first()
    .click();
  await settled(page);
  expect(new URL(page.url()).pathname).toContain("/compare");
  expect(readSearch(new URL(page.url()).search).other).toBeDefined();
});

test.runIf(real)("recordings of one program are told apart: command, start, length, events", async () => {
  const page = await open("/");
  const rows = page.locator("table.recordings tbody tr");
  const row = rows.filter({ hasText: "memory-bazaar.dat" });
  const info = await api<Info>(`recordings/${bazaar}`);
  const started = info.process.started_at.slice(0, 19).replace("T", " ");
  await expect.poll(() => row.textContent()).toContain(started);
  await expect.poll(() => row.locator(".command").textContent()).toMatch(/shop after$/);
  const { alloc, free, realloc, map, unmap, remap } = info.events;
  expect(await row.textContent()).toContain((alloc + free + realloc + map + unmap + remap).toLocaleString("en-US"));
  // So does the list in every view.
  await page.goto(`${page.url().replace(/\/$/, "")}/r/${bazaar}/overview`);
  await settled(page);
  const options = await page.locator(".top-bar select option").allTextContents();
  expect(options.find((text) => text.includes(started.slice(5)))).toBeDefined();
});

test.runIf(real)("two recordings are compared by their peaks, and by what they allocated", async () => {
  const page = await open(`/r/${shop}/compare?other=${bazaar}`);
  await settled(page);
  const totals = () => page.locator(".split-view .view-bar").first().textContent();
  for (const [label, metric] of [
    ["Peak", "peak"],
    ["Allocated", "allocated"],
  ] as const) {
    await page.getByRole("group", { name: "What is compared" }).getByText(label, { exact: true }).click();
    await settled(page);
    const diff = await api<Diff>(`recordings/${shop}/diff?other=${bazaar}&metric=${metric}&limit=1`);
    await expect.poll(totals).toContain(formatBytes(diff.total_before.bytes));
    expect(await totals()).toContain(formatBytes(diff.total_after.bytes));
  }
});

test.runIf(real)(
  "two recordings show both timelines, on the same scales, with what was live under the pointer",
  async () => {
    const page = await open(`/r/${shop}/compare?other=${bazaar}&metric=peak`);
    await settled(page);
    const sides = page.locator(".both-timelines .both-side");
    await expect.poll(() => sides.locator("canvas").count()).toBeGreaterThan(1);
    const infos = await Promise.all([shop, bazaar].map((id) => api<Info>(`recordings/${id}`)));
    for (const [i, info] of infos.entries()) {
      await expect.poll(() => sides.nth(i).textContent()).toContain(formatBytes(info.peak.bytes));
      expect(await sides.nth(i).textContent()).toContain(["memory-shop.dat", "memory-bazaar.dat"][i]);
      expect(await sides.nth(i).locator(".flag").count()).toBe(1);
    }
    // The peak is what is compared where nobody chose anything, too.
    const places = () =>
      sides.locator(".flag").evaluateAll((flags) => flags.map((flag) => (flag as HTMLElement).style.left));
    const ofPeaks = await places();
    await page.goto(page.url().replace("&metric=peak", ""));
    await settled(page);
    await expect.poll(places).toEqual(ofPeaks);
    // They stand below one another, as wide as the timeline over the views.
    const left = (selector: string) =>
      page
        .locator(selector)
        .first()
        .evaluate((one) => Math.round(one.getBoundingClientRect().left));
    expect(await left(".both-side .timeline-plot")).toBe(await left(".timeline .timeline-surface"));
    await sides.first().locator(".timeline-plot").hover();
    await expect.poll(() => sides.first().locator("output").textContent()).toMatch(/s: .*B$/);
    expect(await seriousFaults(page)).toEqual([]);
    // Not where there is one recording.
    await page.locator(".compare-view .view-bar select").first().selectOption("instants");
    await settled(page);
    expect(await page.locator(".both-timelines").count()).toBe(0);
  },
);

test.runIf(real)("the table has both numbers, and what happened to them", async () => {
  const diff = await api<Diff>(`recordings/${shop}/diff?other=${bazaar}`);
  const page = await open(`/r/${shop}/compare?other=${bazaar}&metric=live`);
  await settled(page);
  const rows = page.locator(".table-body [role=row]");
  const cells = async (name: string) =>
    (await rows.evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent ?? "")))).find(
      (row) => row.some((cell) => cell.startsWith(name)),
    );
  const cache = diff.rows.find((row) => row.stack[0]?.function === "cache_insert");
  expect(cache?.after.bytes).toBeGreaterThan(cache?.before.bytes ?? 0);
  const shown = await cells("cache_insert");
  expect(shown?.join(" ")).toContain("600 KiB");
  expect(shown?.join(" ")).toContain("900 KiB");
  expect(shown?.join(" ")).toContain("+50.0%");
  expect((await cells("coupons"))?.join(" ")).toContain("new");
  await page.getByText("New", { exact: true }).click();
  await expect.poll(() => readSearch(new URL(page.url()).search).kind).toBe("new");
  await expect
    .poll(async () => (await cells("coupons")) !== undefined && (await cells("cache_insert")) === undefined)
    .toBe(true);
});

test.runIf(real)("of ended programs the peaks are compared, the largest change in either direction first", async () => {
  const page = await open(`/r/${shop}/compare?other=${bazaar}`);
  await settled(page);
  const what = page.getByRole("group", { name: "What is compared" });
  await expect.poll(() => what.getByRole("radio", { checked: true }).inputValue()).toBe("peak");
  const diff = await api<Diff>(`recordings/${shop}/diff?other=${bazaar}&metric=peak&limit=2000`);
  const changes = diff.rows.map((row) => row.after.bytes - row.before.bytes);
  const first = [...changes].sort((a, b) => Math.abs(b) - Math.abs(a))[0] ?? 0;
  expect(first).toBeLessThan(0);
  const row = page.locator(".table-body [role=row]").first();
  expect(await row.locator(".change").getAttribute("title")).toContain(Math.abs(first).toLocaleString("en-US"));
  // Instants of one recording are live blocks, whatever was compared before.
  await page.locator(".compare-view select").first().selectOption("instants");
  await settled(page);
  expect(await page.locator(".view-bar", { hasText: "A/B on the timeline sets others" }).count()).toBe(1);
});

test.runIf(real)("the flame graph: red grew, blue shrank, signs and words say it as well", async () => {
  const page = await open(`/r/${shop}/compare?other=${bazaar}&metric=live`);
  await settled(page);
  await page.getByText("Flame graph", { exact: true }).last().click();
  await settled(page);
  const frame = (name: string) => page.locator(`.flame-chart .frame[data-written*="${name}"]`).first();
  await expect.poll(() => page.locator(".flame-chart .frame").count()).toBeGreaterThan(5);
  const hue = (name: string) =>
    frame(name).evaluate((item) =>
      Number(/oklch\([\d.]+ [\d.]+ (\d+)\)/.exec(item.getAttribute("data-fill") ?? "")?.[1]),
    );
  expect(await frame("cache_insert").getAttribute("data-written")).toContain("▲");
  expect(await hue("cache_insert")).toBeLessThan(60);
  await expect.poll(() => frame("coupons").getAttribute("aria-label")).toContain("new");
  await page.locator(".flame-chart").focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect.poll(() => readSearch(new URL(page.url()).search).root).toBeDefined();
  await settled(page);
  await page.goBack();
  await settled(page);
  await frame("coupons").hover({ force: true });
  await expect.poll(() => page.locator(".frame-tip").textContent()).toContain("70,000 bytes");
  await page.getByText("Changes", { exact: true }).click();
  await settled(page);
  // Names of frames follow a moment after the frames have their place.
  await expect.poll(() => seriousFaults(page)).toEqual([]);
});

test.runIf(real)("upside down: the allocating functions first, zoomed and back", async () => {
  const page = await open(`/r/${shop}/compare?other=${bazaar}&metric=live&graph=1`);
  await settled(page);
  await page.getByRole("button", { name: "Inverted" }).click();
  await settled(page);
  expect(readSearch(new URL(page.url()).search).inverted).toBe(true);
  const cache = page.locator(".flame-chart .frame[aria-level='2'][data-written*='cache_insert']");
  await expect.poll(() => cache.getAttribute("aria-label")).toMatch(/600 KiB before, 900 KiB after/);
  await cache.click({ force: true });
  await expect.poll(() => readSearch(new URL(page.url()).search).root).toBeDefined();
  await settled(page);
  await expect.poll(() => page.locator(".flame-chart .frame[aria-level='2'][data-written*='session']").count()).toBe(1);
  await page.goBack();
  await settled(page);
  await expect.poll(() => cache.count()).toBe(1);
  expect(await seriousFaults(page)).toEqual([]);
});

test.runIf(real)("peaks shrank: the other way round, everything is blue", async () => {
  const document = await api<DiffFlamegraph>(`recordings/${bazaar}/diff/flamegraph?other=${shop}&metric=peak`);
  expect(document.total_after).toBeGreaterThan(document.total_before);
  const back = await api<DiffFlamegraph>(`recordings/${shop}/diff/flamegraph?other=${bazaar}&metric=peak`);
  expect([back.total_before, back.total_after]).toEqual([document.total_after, document.total_before]);
});

test.runIf(real)("two instants of one recording, as a graph", async () => {
  const page = await open(`/r/${shop}/compare?a=0.4s&b=0.55s&graph=1`);
  await settled(page);
  await expect.poll(() => page.locator(".flame-chart .frame").count()).toBeGreaterThan(3);
  expect(await page.locator(".flame-bar").textContent()).toContain("A, 400 ms");
  await page.keyboard.press("1");
  await settled(page);
  expect(readSearch(new URL(page.url()).search).root).toBeUndefined();
});

test.runIf(real)("two ranges of one recording: what each allocated, and in shares", async () => {
  const page = await open(`/r/${shop}/compare`);
  await settled(page);
  await page.locator(".compare-view .view-bar select").first().selectOption("ranges");
  await settled(page);
  const ranges = readSearch(new URL(page.url()).search).ranges;
  expect(ranges?.[0].to).toBe(ranges?.[1].from);
  // Both are on the timeline, side by side.
  const drawn = page.locator(".timeline .compared");
  await expect.poll(() => drawn.allTextContents()).toEqual(["A", "B"]);
  const boxes = await Promise.all([0, 1].map((at) => drawn.nth(at).boundingBox()));
  expect(boxes[1]?.x).toBeCloseTo((boxes[0]?.x ?? 0) + (boxes[0]?.width ?? 0), 0);
  const sides = `before=${ranges?.[0].from}..${ranges?.[0].to}&after=${ranges?.[1].from}..${ranges?.[1].to}`;
  const diff = await api<Diff>(`recordings/${shop}/diff?${sides}&metric=allocated&limit=1`);
  const info = await api<Info>(`recordings/${shop}`);
  expect(diff.total_before.bytes + diff.total_after.bytes).toBe(info.allocations.bytes);
  const totals = () => page.locator(".split-view .view-bar").first().textContent();
  await expect.poll(totals).toContain(formatBytes(diff.total_before.bytes));
  expect(await totals()).toContain(formatBytes(diff.total_after.bytes));
  expect(await seriousFaults(page)).toEqual([]);
  // Scaled, both sides have the second one's total, in the table and in the graph.
  await page.getByRole("button", { name: "Normalize" }).click();
  await settled(page);
  await expect.poll(totals).toContain("A was scaled");
  const after = formatBytes(diff.total_after.bytes);
  expect((await totals())?.split(after)).toHaveLength(3);
  await page.getByText("Flame graph", { exact: true }).last().click();
  await settled(page);
  await expect.poll(() => page.locator(".flame-bar").textContent()).toContain("A was scaled");
  // The timeline's window becomes a range.
  const window = writeWindow({ from: 0, to: Math.floor((ranges?.[0].to ?? 0) / 2) });
  await page.goto(`${page.url()}&window=${window}`);
  await settled(page);
  await page.getByRole("button", { name: "Set B" }).click();
  await settled(page);
  const search = readSearch(new URL(page.url()).search);
  expect(search.ranges?.[1]).toEqual(search.window);
});
