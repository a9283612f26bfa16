// Resident memory has one figure, whoever is asked; pins, layers of live memory, leaks by function.
import { spawnSync } from "node:child_process";
import { beforeAll, expect, inject, test } from "vitest";
import type {
  Breakdown,
  DiffFlamegraph,
  Flamegraph,
  Info,
  KeptReplay,
  Leaks,
  Memory,
  MemoryHistory,
  Pins,
  Replay,
  ReplayRow,
  Timeline,
} from "../src/api/types.ts";
import { formatBytes } from "../src/lib/format.ts";
import { readSearch } from "../src/lib/search-params.ts";
import { api, open, recordingOf, seriousFaults, settled, useBrowser } from "./browser.ts";

useBrowser();

let shop = "";
beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
});

const mock = inject("mock");

/** The bytes in the titles of the rows, by key. */
async function shownRows(page: Awaited<ReturnType<typeof open>>, within: string): Promise<Record<string, number>> {
  const rows = await page
    .locator(`${within} .memory-parts tr[data-part]`)
    .evaluateAll((found) =>
      found.map((row): [string, string] => [
        row.getAttribute("data-part") ?? "",
        row.querySelector("td.numeric[title]")?.getAttribute("title") ?? "",
      ]),
    );
  return Object.fromEntries(rows.map(([key, title]) => [key, Number(title.replace(/\D/g, ""))]));
}

test.skipIf(mock)("command, server and page have one figure for each part of resident memory", async () => {
  const info = await api<Info>(`recordings/${shop}`);
  const at = info.peak_rss?.at_ns ?? 0;
  const served = await api<Memory>(`recordings/${shop}/memory?at=${at}`);
  const said = spawnSync(inject("heaptrace"), ["memory", "--json", "--at", String(at), "memory-shop.dat"], {
    cwd: inject("folder"),
    encoding: "utf8",
  });
  const printed = JSON.parse(said.stdout) as Memory;
  expect(printed.rows).toEqual(served.rows);
  expect([printed.rss_bytes, printed.look_ns]).toEqual([served.rss_bytes, served.look_ns]);
  const expected = Object.fromEntries(
    (served.rows ?? []).filter((row) => row.bytes > 0).map((row) => [row.key, row.bytes]),
  );
  expected["rss"] = served.rss_bytes ?? 0;
  expect(expected["recorder"]).toBe(info.peak_rss?.recorder_bytes);
  const page = await open(`/r/${shop}/overview`);
  await settled(page);
  await expect.poll(() => shownRows(page, "[data-panel=memory]")).toEqual(expected);
  // The tile has the ledger's part for the recorder, and its sum where the peak was looked at.
  const tile = await page.locator("[data-fact=rss]").textContent();
  const row = await page.locator("[data-panel=memory] tr[data-part=recorder] td.numeric").first().textContent();
  expect(tile).toContain(`recorder ${row}`);
  await page.goto(`${inject("url")}/r/${shop}/memory`);
  await settled(page);
  await expect.poll(() => shownRows(page, ".memory-now")).toEqual(expected);
  await page.getByRole("button", { name: "Parts of Code and data of modules" }).click();
  const parts = page.locator("tr[data-child=modules]");
  expect(await parts.count()).toBeGreaterThan(1);
});

test.skipIf(mock)("the history is the ledger of each look", async () => {
  const history = await api<MemoryHistory>(`recordings/${shop}/memory_history?points=5`);
  expect(history.t_ns.length).toBeGreaterThan(1);
  for (const [i, t] of history.t_ns.entries()) {
    const memory = await api<Memory>(`recordings/${shop}/memory?at=${t}`);
    const there = Object.fromEntries((memory.rows ?? []).map((row) => [row.key, row.bytes]));
    for (const row of history.rows) expect(row.bytes[i], `${row.key} at ${t}`).toBe(there[row.key]);
    expect(history.rss_bytes[i]).toBe(memory.rss_bytes);
  }
  const page = await open(`/r/${shop}/memory`);
  await settled(page);
  await expect.poll(() => page.locator(".memory-view .stacked canvas").count()).toBe(1);
  // A click takes the instant.
  await page.locator(".memory-view .stacked-plot").click({ position: { x: 300, y: 5 } });
  await expect.poll(() => new URL(page.url()).searchParams.get("at")).not.toBeNull();
});

for (const theme of ["light", "dark"] as const) {
  test.skipIf(mock)(`axe finds nothing serious in memory and pins with rows open, ${theme}`, async () => {
    const page = await open(`/r/${shop}/memory`, { theme });
    await settled(page);
    await page.locator(".disclose[aria-expanded]").first().click();
    await expect.poll(() => page.locator(".stacked canvas").count()).toBe(1);
    expect(await seriousFaults(page)).toEqual([]);
    for (const by of ["function", "age"]) {
      await page.goto(`${inject("url")}/r/${shop}/pins?pins=${by}`);
      await settled(page);
      expect(await seriousFaults(page), by).toEqual([]);
    }
  });
}

test.skipIf(mock)("pins are the server's, by function, site, age and thread", async () => {
  const info = await api<Info>(`recordings/${shop}`);
  const page = await open(`/r/${shop}/pins`);
  await settled(page);
  for (const by of ["function", "site", "age", "thread"] as const) {
    const pins = await api<Pins>(`recordings/${shop}/pins?by=${by}&limit=2000&at=${info.peak_rss?.at_ns}`);
    await page.getByRole("radio", { name: by, exact: false }).check({ force: true });
    await expect
      .poll(() => page.locator("[role=grid]").getAttribute("aria-rowcount"))
      .toBe(String(pins.rows.length + 1));
    const first = page.locator(".table-body [role=row]").first().locator("[role=gridcell]").nth(1);
    await expect
      .poll(() => first.locator("[title]").getAttribute("title"))
      .toContain((pins.rows[0]?.given_back_bytes ?? 0).toLocaleString("en-US"));
  }
  expect(new URL(page.url()).searchParams.get("pins")).toBe("thread");
});

test.skipIf(mock)("pins are counted in huge pages and in slabs, in the table and in the flame graph", async () => {
  const info = await api<Info>(`recordings/${shop}`);
  const page = await open(`/r/${shop}/pins`);
  await settled(page);
  for (const [unit, label] of [
    ["2M", "2 MiB"],
    ["slab", "Slab"],
  ] as const) {
    const pins = await api<Pins>(`recordings/${shop}/pins?unit=${unit}&limit=2000&at=${info.peak_rss?.at_ns}`);
    await page.getByRole("radio", { name: label }).check({ force: true });
    await expect.poll(() => new URL(page.url()).searchParams.get("pin_unit")).toBe(unit);
    await settled(page);
    const words = unit === "2M" ? "huge page" : "of slabs";
    await expect.poll(() => page.getByTestId("pinned").textContent()).toContain(words);
    await expect
      .poll(() => page.getByTestId("pinned").textContent())
      .toContain(pins.pages.count.toLocaleString("en-US"));
    expect(await seriousFaults(page), unit).toEqual([]);
  }
  await page.getByRole("button", { name: "Flame graph" }).click();
  await settled(page);
  const { at, pin_unit } = readSearch(new URL(page.url()).search);
  expect(pin_unit).toBe("slab");
  const graph = await api<Flamegraph>(
    `recordings/${shop}/flamegraph?metric=live&at=${at}&pinned=true&pin_unit=${pin_unit}`,
  );
  await expect
    .poll(() => page.locator(".flame-bar").textContent())
    .toContain(`pinned pages of slabs ${formatBytes(graph.total)}`);
});

test.skipIf(mock)("pinned pages as a flame graph, of one moment and of two", async () => {
  const page = await open(`/r/${shop}/pins`);
  await settled(page);
  await page.getByRole("button", { name: "Flame graph" }).click();
  await settled(page);
  const { at, pinned } = readSearch(new URL(page.url()).search);
  expect(pinned).toBe(true);
  const graph = await api<Flamegraph>(`recordings/${shop}/flamegraph?metric=live&at=${at}&pinned=true`);
  const pins = await api<Pins>(`recordings/${shop}/pins?at=${at}`);
  expect(graph.total).toBe(pins.pages.bytes);
  const chart = page.locator(".flame-chart");
  await expect.poll(() => chart.getAttribute("aria-label")).toContain("pages pinned");
  const root = page.locator(".flame-items .frame").first();
  await expect.poll(() => root.getAttribute("aria-label")).toContain(formatBytes(graph.total));
  await expect
    .poll(() => page.locator(".flame-bar").textContent())
    .toContain(`pinned pages ${formatBytes(graph.total)}`);
  await page.getByRole("button", { name: "Pinned pages" }).click();
  await expect.poll(() => readSearch(new URL(page.url()).search).pinned).toBeUndefined();
  await settled(page);
  await expect.poll(() => chart.getAttribute("aria-label")).not.toContain("pinned");
  // A comparison has them on both sides.
  const diff = await api<DiffFlamegraph>(`recordings/${shop}/diff/flamegraph?from=0&to=${at}&pinned=true`);
  expect(diff.total_after).toBe(graph.total);
  await page.goto(`${inject("url")}/r/${shop}/compare?graph=1&a=0&b=${at}`);
  await settled(page);
  await page.getByRole("button", { name: "Pinned pages" }).click();
  await settled(page);
  await expect.poll(() => page.locator(".flame-bar").textContent()).toContain(formatBytes(diff.total_after));
});

test.skipIf(mock)("layers of live memory add up to the curve of the heap, and lead to what they are", async () => {
  // The page's own question: a block that lives for a moment is a row only where a point falls on it.
  const breakdown = await api<Breakdown>(`recordings/${shop}/breakdown?by=function&points=300&top=10`);
  const timeline = await api<Timeline>(`recordings/${shop}/timeline?series=live_bytes&points=300`);
  const sums = breakdown.t_ns.map((_, i) =>
    breakdown.rows.reduce((sum, row) => sum + (row.bytes[i] ?? 0), breakdown.rest[i] ?? 0),
  );
  expect(sums).toEqual(timeline.series[0]?.last);
  const page = await open(`/r/${shop}/overview`);
  await settled(page);
  const rows = page.locator("[data-panel=layers] tr[data-layer]");
  await expect.poll(() => rows.count()).toBe(breakdown.rows.length + (breakdown.rest_rows > 0 ? 1 : 0));
  // With a window the same question is asked for it.
  await page.goto(`${inject("url")}/r/${shop}/overview?window=0.2s-0.5s&layers=thread`);
  await settled(page);
  const threads = await api<Breakdown>(
    `recordings/${shop}/breakdown?by=thread&from=200000000&to=500000000&points=300&top=10`,
  );
  await expect
    .poll(() => page.locator("[data-panel=layers] tr[data-layer]:not([data-layer=rest])").count())
    .toBe(threads.rows.length);
  await page.locator("[data-panel=layers] button.layer-name").first().click();
  await expect.poll(() => new URL(page.url()).pathname).toBe(`/r/${shop}/functions`);
  expect(new URL(page.url()).searchParams.get("thread")).not.toBeNull();
});

test.skipIf(mock)("one leak is one row, its sites are inside, and suppressing it can be undone", async () => {
  const leaks = await api<Leaks>(`recordings/${shop}/leaks?builtin_suppressions=true&functions=100`);
  const page = await open(`/r/${shop}/leaks`);
  await settled(page);
  const count = () => page.locator("[role=grid]").getAttribute("aria-rowcount");
  await expect.poll(count).toBe(String((leaks.functions?.length ?? 0) + 1));
  const sum = () => page.locator("[data-testid=leaked] [data-exact]").getAttribute("data-exact").then(Number);
  expect(await sum()).toBe(leaks.leaked.bytes);
  expect(await page.locator(".side .small-table tr").count()).toBe(leaks.functions?.[0]?.sites.length);
  await page.locator(".table-body [role=row]").first().click({ button: "right" });
  await page.getByRole("menuitem", { name: "Suppress" }).click();
  // Of the sum what was suppressed is gone; with nothing left the view says so, and still has the way back.
  const rest = leaks.leaked.bytes - (leaks.functions?.[0]?.bytes ?? 0);
  if (rest > 0) await expect.poll(sum).toBe(rest);
  else
    await expect
      .poll(() => page.locator("main").textContent())
      .toContain("All that leaked in this window is suppressed");
  expect(new URL(page.url()).searchParams.get("suppress")).toContain(leaks.functions?.[0]?.function);
  await page.getByTestId("suppressed").click();
  await page.getByRole("menuitem", { name: /^Take back/ }).click();
  await expect.poll(sum).toBe(leaks.leaked.bytes);
});

test("an ended program opens on its peak, everywhere the same", async () => {
  const info = await api<Info>(`recordings/${shop}`);
  for (const view of ["flamegraph", "calltree", "functions"]) {
    const page = await open(`/r/${shop}/${view}`);
    await settled(page);
    expect(await page.locator(".filter-bar input[value=peak]").isChecked(), view).toBe(true);
    expect(await page.getByRole("button", { name: "Peak", exact: true }).getAttribute("aria-pressed"), view).toBe(
      "true",
    );
    if (view === "functions" && !mock)
      expect(await page.locator(".view-bar").textContent()).toContain(
        `${(info.peak.bytes / 1024 / 1024).toFixed(2)} MiB`,
      );
  }
});

/** A replay as the server would give it, with a row of each kind. */
function replayed(): KeptReplay {
  const MIB = 1 << 20;
  const row = (allocator: string, settings: Record<string, string>, low: number, high: number): ReplayRow => ({
    allocator,
    settings,
    peak_bytes: [low * MIB, high * MIB],
    end_bytes: [MIB, 2 * MIB],
    cpu_ns: 12_300_000,
    command: `LD_PRELOAD=/usr/lib/x86_64-linux-gnu/${"long/".repeat(20)}lib.so ./shop --name='a b'`,
  });
  return {
    schema: "heaptrace.kept_replay/1",
    checked: true,
    smaller: 1,
    command: "heaptrace replay memory-shop.dat",
    replay: {
      schema: "heaptrace.replay/1",
      recorded: { allocator: "glibc 2.36", peak_bytes: 209 * MIB, other_bytes: 3 * MIB },
      self_check: { peak_bytes: 211 * MIB, error: 0.0123 },
      rows: [
        row("glibc 2.36", {}, 180, 211),
        row("jemalloc 5.3.0", { dirty_decay_ms: "0" }, 53, 53),
        { ...row("<img src=x onerror=window.hacked=1>", {}, 0, 0), failed: "libfake.so cannot be preloaded" },
        { ...row("tight", {}, 70, 80), failed: "3 allocations failed" },
      ],
    },
  };
}

for (const theme of ["light", "dark"] as const) {
  test.skipIf(mock)(
    `replayed allocators stand beside what was recorded, also on a small screen, ${theme}`,
    async () => {
      const page = await open("/favicon.svg", { theme, width: 390, height: 800 });
      await page.route("**/api/v1/recordings/*/replay", (route) => route.fulfill({ json: replayed() }));
      await page.goto(`${inject("url")}/r/${shop}/memory`);
      await settled(page);
      const panel = page.locator("[data-panel=replay]");
      await expect
        .poll(() =>
          panel.locator("tbody[data-replay]").evaluateAll((rows) => rows.map((row) => row.getAttribute("data-replay"))),
        )
        .toEqual([
          "recorded",
          "jemalloc 5.3.0 with dirty_decay_ms=0",
          "tight",
          "glibc 2.36",
          "<img src=x onerror=window.hacked=1>",
        ]);
      expect(await panel.textContent()).toContain(
        "jemalloc 5.3.0 with dirty_decay_ms=0 would hold 53.0 MiB at the peak instead of 209 MiB (glibc 2.36).",
      );
      expect(await panel.getByTestId("replay-error").textContent()).toBe("± 1.23%");
      expect(await panel.locator("tbody[data-least]").count()).toBe(1);
      expect(await panel.locator("[data-replay^='<img']").textContent()).toContain("libfake.so cannot be preloaded");
      expect(await panel.locator("[data-replay=tight]").textContent()).toContain("70.0 MiB – 80.0 MiB");
      // Bars have one scale: the largest peak is as wide as the bar, and the line is where the recording was.
      const widths = await panel
        .locator("[data-replay='glibc 2.36'] .replay-bar")
        .evaluate((bar) =>
          [...bar.children].map((part) => part.getBoundingClientRect().x - bar.getBoundingClientRect().x),
        );
      const whole = await panel
        .locator(".replay-bar")
        .last()
        .evaluate((bar) => bar.getBoundingClientRect().width);
      expect(widths[1]).toBeCloseTo((whole * 180) / 211, 0);
      expect(Math.abs((widths[2] ?? 0) + 1 - (whole * 209) / 211)).toBeLessThan(1);
      // A key copies the command that proves a row.
      const copy = panel.getByRole("button", { name: "Copy the command for jemalloc 5.3.0 with dirty_decay_ms=0" });
      await copy.focus();
      await page.keyboard.press("Enter");
      await expect
        .poll(() => page.evaluate(() => navigator.clipboard.readText()))
        .toBe(replayed().replay?.rows[1]?.command);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
      expect(await page.evaluate(() => "hacked" in window)).toBe(false);
      expect(await seriousFaults(page)).toEqual([]);
      // What holds less is worth reading first, and leads here.
      await page.goto(`${inject("url")}/r/${shop}/overview`);
      await settled(page);
      const finding = page.locator(".findings a", { hasText: "by jemalloc 5.3.0 with dirty_decay_ms=0" });
      await expect.poll(() => finding.textContent()).toContain("53.0 MiB instead of 209 MiB at the peak");
      await finding.click();
      await expect.poll(() => new URL(page.url()).pathname).toBe(`/r/${shop}/memory`);
    },
  );
}

test.skipIf(mock)("a replay in a shell shows in the open page, with the command's rows", async () => {
  const bazaar = (await recordingOf("bazaar")).id;
  const page = await open(`/r/${bazaar}/memory`);
  await settled(page);
  const panel = page.locator("[data-panel=replay]");
  await expect.poll(() => panel.textContent()).toContain("Nothing has been replayed yet");
  const before = await api<KeptReplay>(`recordings/${bazaar}/replay`);
  expect([before.replay, before.smaller, before.checked]).toEqual([null, null, false]);
  await panel.getByRole("button", { name: "Copy the command" }).click();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  expect(command).toBe(before.command);
  expect(command).toMatch(/^heaptrace replay .*memory-bazaar\.dat$/);
  const said = spawnSync(inject("heaptrace"), ["replay", "--allocator", "system", "--json", "memory-bazaar.dat"], {
    cwd: inject("folder"),
    encoding: "utf8",
  });
  expect(said.status, said.stderr).toBe(0);
  const printed = JSON.parse(said.stdout) as Replay;
  const served = await api<KeptReplay>(`recordings/${bazaar}/replay`);
  expect(served.replay?.rows).toEqual(printed.rows);
  expect(served.replay?.recorded).toEqual(printed.recorded);
  // Without a reload: the page asks again.
  await expect
    .poll(() => panel.locator("tbody[data-replay]").count(), { timeout: 15_000 })
    .toBe(1 + printed.rows.length);
  const exact = (bytes: number | undefined) => `${(bytes ?? 0).toLocaleString("en-US")} bytes`;
  const titles = await panel
    .locator(".replay-peak")
    .evaluateAll((cells) => cells.map((cell) => cell.getAttribute("title")));
  expect(titles[0]).toBe(exact(printed.recorded.peak_bytes));
  expect(titles[1]).toContain(exact(printed.rows[0]?.peak_bytes[1]));
});
