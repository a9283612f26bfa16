// A picture of every view in both themes at several widths, to be looked at: node e2e/looks.mjs OUT URL. A command, not
// a test. The server serves recordings whose names hold `tiny`, `typical`, `million` and `live`, and `typical-after` and
// `million-after` to compare with. ONLY (a regular expression) and WIDTHS choose; `index.html` in OUT shows them all.
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [out, url = process.env.HEAPTRACE_URL, report] = process.argv.slice(2);
if (!out || !url) throw new Error("usage: node e2e/looks.mjs OUT URL [report.html]");
const WIDTHS = (process.env.WIDTHS ?? "1280,2560").split(",").map(Number);
const THEMES = (process.env.THEMES ?? "dark,light").split(",");
const ONLY = new RegExp(process.env.ONLY ?? ".");
const HEIGHTS = new Map([
  [390, 844],
  [1024, 700],
  [1280, 800],
  [1440, 900],
  [2560, 1440],
  [3840, 2160],
]);

const ask = async (path) => {
  const response = await fetch(`${url}/api/v1/${path}`);
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return response.json();
};
const { recordings } = await ask("recordings");
const idOf = (name) => recordings.find((known) => known.name === `memory-${name}.dat`)?.id;

/** The first of what is drawn, hovered. */
const hover = (selector) => async (page) => {
  await page.locator(selector).first().hover({ force: true, timeout: 3000 });
};
const press = (key) => (page) => page.keyboard.press(key);
const menuOf = (selector) => (page) =>
  page.locator(selector).first().click({ button: "right", force: true, timeout: 3000 });

/** Views of a recording; words in capitals stand for what its server says. */
const VIEWS = [
  ["overview", "overview"],
  ["overview-window", "overview", "window=WINDOW&focus=."],
  ["overview-at", "overview", "at=MIDDLE"],
  ["timeline-tracks", "functions", "metric=allocated&window=WINDOW&tracks=count,threads"],
  ["flame", "flamegraph", "metric=peak", hover(".flame-chart .frame[aria-level='3']")],
  ["flame-allocated", "flamegraph", "metric=allocated&unit=count&q=e"],
  ["flame-inverted", "flamegraph", "metric=allocated&inverted=1"],
  ["flame-upwards", "flamegraph", "metric=live&upwards=1&collapse=1"],
  ["flame-menu", "flamegraph", "metric=allocated", menuOf(".flame-chart .frame[aria-level='3']")],
  ["sandwich", "flamegraph", "metric=allocated&sandwich=FUNCTION"],
  ["functions", "functions", "metric=allocated"],
  ["functions-module", "functions", "metric=allocated&by=module"],
  ["functions-menu", "functions", "metric=peak", menuOf(".table-body [role=row]")],
  ["calltree", "calltree", "metric=allocated"],
  ["calltree-bottom-up", "calltree", "metric=allocated&inverted=1"],
  ["sites", "sites", "sort=allocated"],
  ["site", "sites", "site=SITE"],
  ["flame-table", "flamegraph", "metric=allocated&split=1"],
  ["leaks", "leaks"],
  ["leaks-sites", "leaks", "persite=1"],
  ["churn", "churn"],
  ["memory", "memory"],
  ["pins", "pins"],
  ["map", "map"],
  ["sql", "sql"],
  ["lifetimes", "lifetimes"],
  ["allocations", "allocations"],
  ["threads", "threads"],
  ["source", "source", "metric=allocated&file=SOURCE&line=LINE"],
  ["compare", "compare", "a=EARLY&b=MIDDLE"],
  ["compare-graph", "compare", "a=EARLY&b=MIDDLE&graph=1"],
  ["recording", "recording"],
];
const COMPARED = [
  ["compare-recordings", "compare", "other=OTHER"],
  ["difference", "compare", "other=OTHER&graph=1&metric=allocated", hover(".flame-chart .frame[aria-level='3']")],
  ["difference-inverted", "compare", "other=OTHER&graph=1&metric=allocated&inverted=1"],
  ["difference-changes", "compare", "other=OTHER&graph=1&metric=allocated&changes=1"],
];
/** States that are the same for all recordings are looked at with the typical one. */
const STATES = [
  ["help", "overview", "", press("?")],
  ["export-menu", "flamegraph", "", (page) => page.getByRole("button", { name: "Export" }).click()],
  [
    "report-dialog",
    "overview",
    "",
    async (page) => {
      await page.getByRole("button", { name: "Export" }).click();
      await page.getByRole("menuitem", { name: /^Report/ }).click();
    },
  ],
  ["add-filter", "functions", "metric=allocated", (page) => page.getByRole("button", { name: "+ Filter" }).click()],
  ["many-filters", "functions", "metric=allocated&focus=.&ignore=zzz&hide=qqq&min_size=16&max_size=1M&lifetime=freed"],
  ["filter-error", "functions", "metric=allocated&focus=("],
  ["filter-empty-functions", "functions", "metric=allocated&focus=nothing_is_called_so"],
  ["filter-empty-flame", "flamegraph", "metric=allocated&focus=nothing_is_called_so"],
  ["filter-empty-calltree", "calltree", "metric=allocated&focus=nothing_is_called_so"],
  ["filter-empty-sites", "sites", "focus=nothing_is_called_so"],
  ["filter-empty-leaks", "leaks", "focus=nothing_is_called_so"],
  ["filter-empty-lifetimes", "lifetimes", "focus=nothing_is_called_so"],
  ["filter-empty-allocations", "allocations", "focus=nothing_is_called_so"],
  ["filter-empty-threads", "threads", "focus=nothing_is_called_so"],
  ["filter-empty-overview", "overview", "focus=nothing_is_called_so"],
  ["search-empty", "functions", "metric=allocated&q=nothing_is_called_so"],
  ["compare-nothing-chosen", "compare"],
  ["source-nothing-chosen", "source"],
  ["source-unreadable", "source", "file=%2Fetc%2Fshadow"],
  ["term", "overview", "", (page) => page.locator("[data-fact=temporary] .term").hover({ force: true, timeout: 3000 })],
];

mkdirSync(out, { recursive: true });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-dev-shm-usage"],
});

let asking = 0;
async function settled(page) {
  await page
    .waitForFunction(
      () =>
        document.querySelector("main") &&
        !document.querySelector("[data-stale], [data-refining], .skeleton, .timeline-blank, .state[role=status]"),
      undefined,
      { timeout: 30_000 },
    )
    .catch(() => console.log(`still waiting: ${page.url()}`));
  let quiet = 0;
  for (let i = 0; i < 300 && quiet < 4; i += 1) {
    await page.waitForTimeout(50);
    quiet = asking === 0 ? quiet + 1 : 0;
  }
}

let made = 0;
async function picture(page, name, address, before) {
  if (!ONLY.test(name)) return;
  try {
    await page.mouse.move(0, 0);
    await page.goto(address.startsWith("file:") ? address : url + address);
    await settled(page);
    if (before) {
      await before(page);
      await settled(page);
      await page.waitForTimeout(150);
    }
  } catch (error) {
    console.log(`${name}: ${String(error).split("\n")[0]}`);
  }
  await page.screenshot({ path: join(out, `${name}.png`) });
  made += 1;
}

/** What the words in capitals stand for. */
async function wordsOf(id, other) {
  const info = await ask(`recordings/${id}`);
  const part = (share) => `${Math.round(info.process.duration_ns * share)}ns`;
  const { rows } = await ask(`recordings/${id}/functions?metric=allocated&sort=cum&limit=40`);
  const { sites } = await ask(`recordings/${id}/sites?sort=allocated&limit=1`);
  const inside = rows.find((row) => row.cum < (rows[0]?.cum ?? 0) * 0.7) ?? rows[0];
  const source = rows.find((row) => row.file && row.line) ?? rows[0];
  return {
    WINDOW: `${part(0.3)}-${part(0.6)}`,
    EARLY: part(0.2),
    MIDDLE: part(0.6),
    FUNCTION: encodeURIComponent(inside?.name ?? "main"),
    SITE: sites[0]?.id ?? "s0",
    SOURCE: encodeURIComponent(source?.file ?? ""),
    LINE: source?.line ?? 1,
    OTHER: other ?? "",
  };
}

const filled = (query, words) => query.replace(/[A-Z]{4,}/g, (word) => words[word] ?? word);

for (const width of WIDTHS) {
  for (const theme of THEMES) {
    const context = await browser.newContext({
      viewport: { width, height: HEIGHTS.get(width) ?? Math.round((width * 9) / 16) },
      colorScheme: theme,
      reducedMotion: "reduce",
    });
    const page = await context.newPage();
    const own = (request) => request.url().includes("/api/") && !request.url().endsWith("/live");
    page.on("request", (request) => (asking += own(request) ? 1 : 0));
    for (const end of ["requestfinished", "requestfailed"])
      page.on(end, (request) => (asking = Math.max(0, asking - (own(request) ? 1 : 0))));
    page.on("pageerror", (error) => console.log(`error: ${error.message} at ${page.url()}`));
    for (const size of ["tiny", "typical", "million", "live"]) {
      const id = idOf(size);
      if (!id) continue;
      const other = idOf(`${size}-after`);
      const words = await wordsOf(id, other);
      const views = [...VIEWS, ...(other ? COMPARED : []), ...(size === "typical" ? STATES : [])];
      for (const [name, view, query = "", before] of views) {
        if (size === "live" && !["overview", "flame", "leaks", "functions"].includes(name)) continue;
        await picture(page, `${name}.${size}.${width}.${theme}`, `/r/${id}/${view}?${filled(query, words)}`, before);
      }
    }
    await picture(page, `lobby.all.${width}.${theme}`, "/");
    await picture(page, `no-such-recording.all.${width}.${theme}`, "/r/r99/overview");
    await picture(page, `no-such-page.all.${width}.${theme}`, "/nowhere");
    if (report) {
      for (const view of ["overview", "flamegraph", "functions", "leaks"])
        await picture(page, `report-${view}.typical.${width}.${theme}`, `file://${report}#/r/r1/${view}`);
    }
    const typical = idOf("typical");
    await picture(page, `server-lost.typical.${width}.${theme}`, `/r/${typical}/overview`, async () => {
      await context.setOffline(true);
      await page.getByRole("link", { name: "Sites", exact: true }).click();
      await page.waitForTimeout(1500);
    });
    await context.setOffline(false);
    await context.close();
  }
}
await browser.close();

const pictures = readdirSync(out).filter((file) => file.endsWith(".png"));
const figures = pictures.map(
  (file) => `<figure><figcaption>${file}</figcaption><a href="${file}"><img src="${file}" loading="lazy"></a></figure>`,
);
writeFileSync(
  join(out, "index.html"),
  `<!doctype html><meta charset="utf-8"><title>looks</title><style>body{display:grid;grid-template-columns:1fr 1fr;gap:16px;font:13px system-ui}figure{margin:0}img{width:100%;border:1px solid}</style>${figures.join("\n")}`,
);
console.log(`${made} pictures in ${out}; open ${join(out, "index.html")}`);
