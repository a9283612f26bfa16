// Every view: it shows what the server says, axe finds nothing serious in either theme, the keyboard reaches it.
import { readFileSync } from "node:fs";
import { beforeAll, expect, inject, test } from "vitest";
import { apiUrl } from "../src/api/client.ts";
import type { Info, Leaks, Lifetimes, RecordingSummary, Sites } from "../src/api/types.ts";
import { EXPORTS } from "../src/app/exports.ts";
import { formatBytes, formatDuration } from "../src/lib/format.ts";
import { readSearch, VIEWS } from "../src/lib/search-params.ts";
import { api, base, forgive, open, recordingOf, seriousFaults, settled, useBrowser } from "./browser.ts";

useBrowser();

let shop = "";
beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
});

test("a view that there is not is said", async () => {
  const page = await open(`/r/${shop}/nosuch`);
  await expect.poll(() => page.locator("h2").first().textContent()).toBe("There is no such page");
});

for (const theme of ["light", "dark"] as const) {
  test(`axe finds nothing serious in any view, ${theme}`, async () => {
    // In one page: a new one would load the program anew for each view.
    const page = await open("/", { theme });
    const faults: string[] = [];
    for (const view of VIEWS) {
      await page.goto(`${base()}/r/${shop}/${view}?metric=allocated`);
      await settled(page);
      expect(await page.evaluate(() => document.documentElement.dataset["theme"])).toBe(theme);
      faults.push(...(await seriousFaults(page)).map((fault) => `${view}: ${fault}`));
    }
    expect(faults).toEqual([]);
  }, 300_000);

  test(`axe finds nothing serious in a window with filters, a site, menu and sheet, ${theme}`, async () => {
    const sites = await api<Sites>(`recordings/${shop}/sites?limit=1&sort=allocated`);
    const page = await open(`/r/${shop}/sites?site=${sites.sites[0]?.id}&window=0.2s-0.8s&focus=.&min_size=1`, {
      theme,
    });
    await settled(page);
    expect(await seriousFaults(page)).toEqual([]);
    await page.getByRole("button", { name: "Export" }).click();
    expect(await seriousFaults(page)).toEqual([]);
    await page.keyboard.press("Escape");
    await page.keyboard.press("?");
    await expect.poll(() => page.locator("dialog[open]").count()).toBe(1);
    expect(await seriousFaults(page)).toEqual([]);
  });
}

test("leaked bytes are the server's to the byte", async () => {
  const leaks = await api<Leaks>(`recordings/${shop}/leaks?builtin_suppressions=true`);
  const page = await open(`/r/${shop}/leaks`);
  await settled(page);
  const exact = await page.locator("[data-testid=leaked] [data-exact]").getAttribute("data-exact");
  expect(Number(exact)).toBe(leaks.leaked.bytes);
  expect(await page.locator("[data-testid=leaked]").textContent()).toContain(
    `${leaks.leaked.bytes.toLocaleString("en-US")} bytes`,
  );
  await expect.poll(() => page.locator(".side").textContent()).toContain(leaks.sites[0]?.verdict.why.slice(1));
});

test("the overview quotes the numbers, with their definitions on hover and focus", async () => {
  const info = await api<Info>(`recordings/${shop}`);
  const page = await open(`/r/${shop}/overview`);
  await settled(page);
  expect(await page.locator("[data-fact=leaked] .fact-value").getAttribute("title")).toContain(
    info.leaked.bytes.toLocaleString("en-US"),
  );
  expect(await page.locator("[data-fact=allocations] .fact-value").getAttribute("title")).toContain(
    info.allocations.count.toLocaleString("en-US"),
  );
  expect(await page.locator("[data-fact=peak] .fact-value").getAttribute("title")).toContain(
    info.peak.bytes.toLocaleString("en-US"),
  );
  await page.locator("[data-fact=peak] .term").hover();
  await expect.poll(() => page.getByRole("tooltip").textContent()).toContain("exact to the event");
  await page.locator("[data-fact=leaked] .term").focus();
  await expect
    .poll(() =>
      page
        .getByRole("tooltip")
        .allTextContents()
        .then((texts) => texts.join()),
    )
    .toContain("when the recording ended");
  expect(await page.locator(".findings li").count()).toBeGreaterThan(0);
});

test("resident memory is taken apart, to the byte, at any instant", async () => {
  if (inject("mock")) return;
  const page = await open(`/r/${shop}/overview`);
  await settled(page);
  const bytes = (rows: string) =>
    page
      .locator(`[data-panel=memory] ${rows} td.numeric[title]`)
      .evaluateAll((cells) =>
        cells.reduce((all, cell) => all + Number((cell.getAttribute("title") ?? "").replace(/\D/g, "")), 0),
      );
  const adds = async () => {
    const rss = await bytes("tr[data-part=rss]");
    return rss > 0 && rss === (await bytes("tr[data-part]:not([data-part=rss])"));
  };
  await expect.poll(adds).toBe(true);
  await page.locator("[data-panel=memory] .term", { hasText: "Holes between live blocks" }).hover();
  await expect.poll(() => page.getByRole("tooltip").textContent()).toContain("cannot be given back");
  // Another instant has other parts.
  await page.goto(`${base()}/r/${shop}/overview?at=0.1s`);
  await settled(page);
  await expect.poll(() => page.locator("[data-panel=memory] h2").textContent()).toContain("at the chosen instant");
  await expect.poll(adds).toBe(true);
});

test("what was asked for has three quarters of a screen of 900 pixels", async () => {
  for (const view of ["overview", "functions", "leaks", "memory"]) {
    const page = await open(`/r/${shop}/${view}`, { width: 1440, height: 900 });
    await settled(page);
    const top = (await page.locator("main.view").boundingBox())?.y ?? 900;
    expect(top, view).toBeLessThanOrEqual(225);
  }
});

test("the first Tab skips to the view", async () => {
  const page = await open(`/r/${shop}/functions`);
  await settled(page);
  await page.keyboard.press("Tab");
  expect(await page.evaluate(() => document.activeElement?.textContent)).toContain("To the view");
  await page.keyboard.press("Enter");
  expect(await page.evaluate(() => document.activeElement?.id)).toBe("view");
});

test("a filter that cannot be used is marked, and blanks nothing", async () => {
  const page = await open(`/r/${shop}/functions?min_size=banana`);
  await settled(page);
  expect(await page.locator(".chip[data-invalid]").textContent()).toContain("no size");
  expect(await page.locator(".table-body [role=row]").count()).toBeGreaterThan(1);
  expect(await page.getByRole("alert").count()).toBe(0);
});

test.each(["flamegraph", "calltree"])("a link to a frame that is not there leads to the whole %s", async (view) => {
  const page = await open(`/r/${shop}/${view}?metric=allocated&root=999999`);
  await page.getByRole("button", { name: "Show the whole tree" }).click();
  await settled(page);
  expect(new URL(page.url()).searchParams.has("root")).toBe(false);
  await expect.poll(() => page.locator("[role=treeitem], .tree-name").count()).toBeGreaterThan(3);
});

test("a search opens the branches of the call tree that match, and says how much they hold", async () => {
  const page = await open(`/r/${shop}/calltree?metric=allocated&q=cache_insert`);
  await settled(page);
  await expect.poll(() => page.getByTestId("matches").textContent()).toMatch(/lines? match.*in stacks with a match/);
  await expect.poll(() => page.locator("[role=row][data-match]").count()).toBeGreaterThan(0);
});

test("a click on the row that the page selected itself stays in the view", async () => {
  const page = await open(`/r/${shop}/leaks?persite=1`);
  await settled(page);
  await page.locator(".table-body [role=row][aria-selected=true]").click();
  await settled(page);
  expect(new URL(page.url()).pathname).toBe(`/r/${shop}/leaks`);
});

test("numbers and letters lead everywhere, the sheet says so", async () => {
  const page = await open(`/r/${shop}/overview`);
  await settled(page);
  for (const [key, view] of [
    ["2", "flamegraph"],
    ["4", "functions"],
    ["0", "compare"],
    ["1", "overview"],
  ] as const) {
    await page.keyboard.press(key);
    await expect.poll(() => new URL(page.url()).pathname).toBe(`/r/${shop}/${view}`);
  }
  await page.keyboard.press("?");
  await expect.poll(() => page.locator("dialog[open]").count()).toBe(1);
  await page.keyboard.press("Escape");
  await expect.poll(() => page.locator("dialog[open]").count()).toBe(0);
  await page.keyboard.press("t");
  await expect.poll(() => page.evaluate(() => document.documentElement.dataset["theme"])).toBe("dark");
  await page.reload();
  await settled(page);
  expect(await page.evaluate(() => document.documentElement.dataset["theme"])).toBe("dark");
});

test("tables: arrows, sorting by header, links open with the selection", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated`);
  await settled(page);
  await page.locator(".table-body [role=row]").first().focus();
  await page.keyboard.press("ArrowDown");
  await expect.poll(() => readSearch(new URL(page.url()).search).selected).toBeTruthy();
  await page.getByRole("button", { name: "Cum", exact: true }).click();
  await settled(page);
  expect(readSearch(new URL(page.url()).search).sort).toBe("cum");
  const cum = await page
    .locator(".table-body [role=row]")
    .evaluateAll((rows) =>
      rows.map((row) => row.children[3]?.querySelector("span")?.getAttribute("title")?.replace(/[^\d]/g, "")),
    );
  expect(cum.map(Number)).toEqual([...cum.map(Number)].sort((a, b) => b - a));
  await page.locator(".table-body [role=row]").first().focus();
  await page.keyboard.press("Enter");
  await settled(page);
  expect(new URL(page.url()).pathname).toBe(`/r/${shop}/flamegraph`);
  await expect.poll(() => page.locator(".flame-chart .frame[data-selected]").count()).toBeGreaterThan(0);
});

test("rows are grouped by file, module, thread and site", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated`);
  await settled(page);
  for (const by of ["file", "module", "thread", "site"]) {
    await page.locator(".view-bar select").selectOption(by);
    await settled(page);
    await expect.poll(() => page.locator(".table-body [role=row]").count(), { message: by }).toBeGreaterThan(0);
  }
});

test("the call tree opens, closes and loads what was too narrow", async () => {
  const page = await open(`/r/${shop}/calltree?metric=allocated`);
  await settled(page);
  const rows = page.locator(".table-body [role=row]");
  const before = await rows.count();
  expect(before).toBeGreaterThan(2);
  await rows.first().focus();
  await page.keyboard.press("ArrowLeft");
  await expect.poll(() => rows.count()).toBe(1);
  await page.keyboard.press("ArrowRight");
  await expect.poll(() => rows.count()).toBe(before);
  await page.getByText("Bottom up", { exact: true }).click();
  await settled(page);
  await expect.poll(() => rows.count()).toBeGreaterThan(1);
});

test("a patch of the heat map filters every view", async () => {
  const page = await open(`/r/${shop}/lifetimes`);
  await settled(page);
  await page.locator(".heat-map").focus();
  for (const key of ["ArrowUp", "Shift+ArrowUp", "Shift+ArrowRight", "Shift+ArrowRight"])
    await page.keyboard.press(key);
  await expect.poll(() => page.locator(".heat-cell[data-on]").count()).toBeGreaterThan(1);
  await page.getByRole("button", { name: "Filter every view by it" }).click();
  await settled(page);
  const { filters } = readSearch(new URL(page.url()).search);
  expect(filters?.min_size).toBeDefined();
  expect(filters?.min_lifetime).toBeDefined();
  expect(await page.locator(".chip").count()).toBeGreaterThanOrEqual(2);
});

test("bars of sizes and lifetimes say how high they are, and what their colours mean", async () => {
  const { histogram } = await api<Lifetimes>(`recordings/${shop}/lifetimes`);
  const page = await open(`/r/${shop}/lifetimes`);
  await settled(page);
  const caption = page.locator(".histogram figcaption").first();
  expect(await caption.textContent()).toContain(`up to ${formatBytes(Math.max(...histogram.bytes))}`);
  expect(histogram.live_count.some((count) => count > 0)).toBe(true);
  expect(await caption.textContent()).toContain("never freed");
  expect(await page.locator(".histogram-bars").first().getAttribute("aria-label")).toMatch(/with [\d,]+ bytes/);
  await page.getByRole("group", { name: "Unit of lifetimes" }).getByText("Blocks").click();
  await expect.poll(() => caption.textContent()).toMatch(/up to [\d.,]+( k| M)? blocks/);
});

test("sites and their pages lead to one another and to their blocks", async () => {
  const page = await open(`/r/${shop}/sites?sort=allocated`);
  await settled(page);
  if (!inject("mock")) {
    // Callers and lifetimes are the site's own.
    const row = page.locator(".table-body [role=row]", { hasText: "cache_insert ← session" }).first();
    const { sites } = await api<Sites>(`recordings/${shop}/sites?sort=allocated`);
    const site = sites.find((known) => known.function === "cache_insert");
    expect(await row.locator("[title^=shortest]").textContent()).toBe(formatDuration(site?.lifetimes.p50_ns ?? -1));
  }
  await page.locator(".table-body [role=row]").first().focus();
  await page.keyboard.press("Enter");
  await expect.poll(() => readSearch(new URL(page.url()).search).site).toBeDefined();
  await settled(page);
  await expect.poll(() => page.locator(".site-page .stack li").count()).toBeGreaterThan(0);
  await page.getByRole("button", { name: "Its allocations" }).click();
  await settled(page);
  await expect.poll(() => page.locator(".table-body [role=row]").count()).toBeGreaterThan(0);
  expect(await page.locator(".chip").textContent()).toContain("site");
});

test("a block that realloc moved leads to what it was and what it became", async () => {
  if (inject("mock")) return;
  const marked = (await recordingOf("marked")).id;
  const page = await open(`/r/${marked}/allocations?min_size=2222&max_size=2222`);
  await settled(page);
  const side = page.locator(".side");
  await expect.poll(() => side.textContent()).toContain("2,222 bytes");
  await expect
    .poll(() => side.textContent())
    .toMatch(/made by realloc from block [\d,]+; turned by realloc into block/);
  await expect.poll(() => side.textContent()).toContain("Freed by");
});

test("a filter is added by hand, and a wrong one says what is wrong", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated`);
  await settled(page);
  await page.getByRole("button", { name: "+ Filter" }).click();
  await page.locator(".add-filter select").selectOption("min_size");
  await page.getByLabel("Value of the filter").fill("4k");
  await page.keyboard.press("Enter");
  await settled(page);
  expect(readSearch(new URL(page.url()).search).filters?.min_size).toBe("4k");
  await page.getByRole("button", { name: "+ Filter" }).click();
  await page.locator(".add-filter select").selectOption("focus");
  await page.getByLabel("Value of the filter").fill("(");
  await page.keyboard.press("Enter");
  await expect
    .poll(() =>
      page
        .getByRole("alert")
        .allTextContents()
        .then((texts) => texts.join()),
    )
    .toContain("focus");
});

test("filters are kept as a preset, and used again", async () => {
  const page = await open(`/r/${shop}/functions?metric=allocated&min_size=1k&focus=main`);
  await settled(page);
  await page.getByRole("button", { name: "Presets" }).click();
  await page.getByRole("menuitem", { name: /^Save/ }).click();
  await page.getByLabel("Name of the preset").press("Enter");
  await page.getByRole("button", { name: "Remove all" }).click();
  await settled(page);
  await page.reload();
  await settled(page);
  await page.getByRole("button", { name: "Presets" }).click();
  await page.getByRole("menuitem", { name: "focus main, min_size 1k" }).first().click();
  await expect.poll(() => readSearch(new URL(page.url()).search).filters).toEqual({ focus: "main", min_size: "1k" });
});

test("a running recording grows before the eye, is held, and followed again", async () => {
  const running = await recordingOf("steady");
  const page = await open(`/r/${running.id}/overview`);
  await settled(page);
  const text = () => page.locator(".pill").first().textContent();
  expect(await text()).toContain("live");
  const value = () => page.locator("[data-fact=allocations] .fact-value").getAttribute("title");
  const first = await value();
  await expect.poll(value, { timeout: 8000 }).not.toBe(first);
  await page.getByRole("button", { name: "Pause" }).click();
  await expect.poll(text).toContain("paused");
  await page.waitForTimeout(500);
  const held = await value();
  await page.waitForTimeout(2500);
  expect(await value()).toBe(held);
  await page.getByRole("button", { name: "Follow" }).click();
  await expect.poll(value, { timeout: 8000 }).not.toBe(held);
});

test("a running recording's graph keeps the frame that the keyboard is at, and one peak is in all places", async () => {
  const running = await recordingOf("steady");
  const page = await open(`/r/${running.id}/flamegraph`);
  await settled(page);
  await page.getByRole("tree").first().focus();
  for (let i = 0; i < 3; i += 1) await page.keyboard.press("ArrowDown");
  const details = page.locator(".details-name");
  await expect.poll(() => details.textContent()).not.toBe("all");
  const name = await details.textContent();
  const total = () => page.locator(".flame-chart [role=treeitem]").first().getAttribute("aria-label");
  const first = await total();
  await expect.poll(total, { timeout: 8000 }).not.toBe(first);
  await page.waitForTimeout(1500);
  expect(await details.textContent()).toBe(name);
  await page.keyboard.press("g");
  await page.keyboard.press("o");
  await settled(page);
  const peaks = () =>
    page.evaluate(() => {
      const text = (selector: string) => document.querySelector(selector)?.textContent ?? "";
      return [text(".readout span[title]"), text("[data-fact=peak] .fact-value")].map((one) =>
        one.replace("peak ", ""),
      );
    });
  for (let i = 0; i < 8; i += 1) {
    const [readout, tile] = await peaks();
    expect(readout).toBe(tile);
    await page.waitForTimeout(400);
  }
});

// Before the test that ends the program, in the same file: the order of files is not fixed.
test("a running recording opens on what is live", async () => {
  const running = await recordingOf("steady");
  const page = await open(`/r/${running.id}/functions`);
  await settled(page);
  expect(await page.locator(".filter-bar input[value=live]").isChecked()).toBe(true);
});

test("when the program ends, the page shows the end", async () => {
  if (inject("mock")) return;
  const running = await recordingOf("steady");
  const page = await open(`/r/${running.id}/overview`);
  await settled(page);
  expect(await page.locator(".pill").first().textContent()).toContain("live");
  process.kill(inject("steady"), "SIGTERM");
  await expect.poll(() => page.locator(".pill").first().textContent(), { timeout: 15_000 }).not.toContain("live");
  const info = await api<Info>(`recordings/${running.id}`);
  await expect
    .poll(() => page.locator("[data-fact=allocations] .fact-value").getAttribute("title"), { timeout: 10_000 })
    .toContain(info.allocations.count.toLocaleString("en-US"));
  expect(await page.locator("[data-fact=leaked] .term").textContent()).toBe("Leaked");
  await page.goto(`${base()}/r/${running.id}/functions`);
  await settled(page);
  expect(await page.locator(".filter-bar input[value=peak]").isChecked()).toBe(true);
});

test("an empty recording says what to check", async () => {
  const empty = await recordingOf("empty");
  const page = await open(`/r/${empty.id}/overview`);
  await expect.poll(() => page.locator("main").textContent()).toContain("holds no allocation");
  for (const view of VIEWS) {
    await page.goto(`${base()}/r/${empty.id}/${view}`);
    await settled(page);
    expect(await page.locator("main.view").textContent(), view).not.toBe("");
  }
});

test("a recording that cannot be opened gives the reason", async () => {
  const page = await open("/favicon.svg");
  const failed: RecordingSummary = {
    id: "r1",
    name: "notes.txt",
    title: "",
    state: "failed",
    progress: { done_bytes: 0, total_bytes: 0, events: 0, events_per_second: 0 },
    file: "as_read" as const,
    error: "notes.txt is not a recording.",
  };
  await page.route("**/api/v1/recordings", (route) =>
    route.fulfill({ json: { schema: "heaptrace.recordings/1", recordings: [failed] } }),
  );
  await page.goto(`${base()}/r/r1/overview`);
  await expect.poll(() => page.locator("main").textContent()).toContain("notes.txt is not a recording.");
  await page.goto(`${base()}/r/r9/overview`);
  await expect.poll(() => page.locator("main").textContent()).toContain("no recording “r9”");
});

test("a lost server is said, and the page goes on when it is back", async () => {
  const page = await open(`/r/${shop}/functions`);
  await settled(page);
  await page.route("**/api/**", (route) => route.abort("connectionrefused"));
  await page.getByText("Allocated", { exact: true }).click();
  await expect.poll(() => page.locator(".banner").count()).toBe(1);
  await page.unroute("**/api/**");
  await expect.poll(() => page.locator(".banner").count(), { timeout: 10_000 }).toBe(0);
  await settled(page);
  await expect.poll(() => page.locator(".table-body [role=row]").count()).toBeGreaterThan(0);
  forgive(page, /ERR_CONNECTION_REFUSED/);
});

test.each([1024, 2560, 3840])("nothing overflows at %d px", async (width) => {
  const page = await open(`/r/${shop}/overview`, { width, height: Math.round(width * 0.6) });
  for (const view of VIEWS) {
    await page.goto(`${base()}/r/${shop}/${view}?metric=allocated`);
    await settled(page);
    expect(await page.evaluate(() => document.documentElement.scrollWidth), view).toBeLessThanOrEqual(width);
  }
});

test("pictures are saved as files", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  for (const [label, begin] of [
    ["Save as SVG", "<svg xmlns"],
    ["Save as PNG", "\u0089PNG"],
  ] as const) {
    await page.getByRole("button", { name: "Save picture" }).click();
    const waiting = page.waitForEvent("download");
    await page.getByRole("menuitem", { name: label }).click();
    const file = await (await waiting).path();
    expect(readFileSync(file, "latin1").startsWith(begin), label).toBe(true);
  }
});

test("the server's policy allows neither inline scripts nor other hosts", async () => {
  const response = await fetch(`${base()}/`);
  const policy = response.headers.get("content-security-policy") ?? "";
  if (inject("mock")) expect(policy).toContain("default-src 'none'");
  expect(policy).toMatch(/script-src 'self'(;|$)|default-src 'self'(;|$)/);
  expect(policy).not.toMatch(/script-src[^;]*'unsafe/);
});

test("every export that the page offers is one that the server writes", async () => {
  if (inject("mock")) return;
  for (const { id, parameters } of EXPORTS) {
    const chosen = parameters({
      metric: { metric: "allocated", unit: "bytes", from: 0 },
      window: {},
      filters: { min_size: "1" },
    });
    const response = await fetch(`${base()}${apiUrl(`recordings/${shop}/export/${id}`, chosen)}`);
    expect(response.status, id).toBe(200);
    expect((await response.arrayBuffer()).byteLength, id).toBeGreaterThan(100);
  }
});
