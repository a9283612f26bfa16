// A walk through every view of a large recording: how long the main thread was busy at once, and where; and how long a
// brush over the time series takes until the answer is on the screen. node e2e/bench-walk.mjs URL [recording id]. Used by
// bench.sh; a command, not a test. WORST=20 prints more of the longest tasks, ONLY (a regular expression) chooses steps.
import { chromium } from "playwright-core";
import { longTasks } from "./long-tasks.mjs";

const [url = process.env.HEAPTRACE_URL, recording = "r1"] = process.argv.slice(2);
if (!url) throw new Error("usage: node e2e/bench-walk.mjs URL [recording id]");
const BRUSHES = 50;
const LIMIT_MS = 50;
const WORST = Number(process.env.WORST ?? 3);
const ONLY = new RegExp(process.env.ONLY ?? ".");
const PATIENCE = { timeout: 120_000 };

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
page.setDefaultTimeout(PATIENCE.timeout);
const settled = () =>
  page.waitForFunction(
    () =>
      document.querySelector("main.view") &&
      !document.querySelector("[data-stale], [data-refining], .skeleton, .timeline-blank, .flame-items[data-old]"),
    undefined,
    PATIENCE,
  );
/** What comes after the answer: other views' code, finer graphs, pictures of a motion. */
const calm = async () => {
  await page.waitForTimeout(60);
  await settled();
  await page.waitForTimeout(700);
};
const address = (view, query = "") => `${url}/r/${recording}/${view}${query}`;

const press = (key) => () => page.keyboard.press(key);
const view = (key) => async () => {
  await page.locator("body").click({ position: { x: 3, y: 3 } });
  await page.keyboard.press("g");
  await page.keyboard.press(key);
};
const search = (text) => async () => {
  const field = page.locator("input[type=search]").first();
  await field.fill("");
  await field.pressSequentially(text, { delay: 60 });
};
const noSearch = () => page.locator("input[type=search]").first().fill("");
const end = async () => {
  await page.locator(".table-body").first().focus();
  await page.keyboard.press("End");
};
const wheel = async () => {
  await page.locator(".table-body").first().hover();
  for (let i = 0; i < 12; i += 1) await page.mouse.wheel(0, 600);
};
const sort = (column) => () => page.locator("[role=columnheader] button").nth(column).click();
const inChart = async (x, y) => {
  const box = await page.locator(".flame-chart").boundingBox();
  return [box.x + x * box.width, box.y + 46 + 20 * y];
};
const zoom = (x, y) => async () => page.mouse.click(...(await inChart(x, y)));
const hover = async () => {
  for (let i = 0; i < 12; i += 1) await page.mouse.move(...(await inChart((i * 0.618) % 0.9, 2 + (i % 12))));
};
const surface = () => page.locator(".timeline-surface").boundingBox();
const brush = (from, to) => async () => {
  const box = await surface();
  const x = (part) => box.x + 70 + part * (box.width - 94);
  await page.mouse.move(x(from), box.y + 30);
  await page.mouse.down();
  for (let i = 1; i <= 8; i += 1) await page.mouse.move(x(from + ((to - from) * i) / 8), box.y + 30);
  await page.mouse.up();
};
const whole = async () => {
  const box = await surface();
  await page.mouse.dblclick(box.x + 200, box.y + 30);
};

const TABLE = (key, name, text) => [
  [`${name}: open`, view(key)],
  [`${name}: wheel`, wheel],
  [`${name}: last row`, end],
  [`${name}: sort`, sort(1)],
  [`${name}: search`, search(text)],
  [`${name}: no search`, noSearch],
];
/** All steps; one that fails is printed as left out. */
const STEPS = [
  ["first visit", () => page.goto(address("overview"))],
  ["overview: brush", brush(0.2, 0.5)],
  ["overview: whole", whole],
  ["flame graph: open", view("f")],
  ["flame graph: hover", hover],
  ["flame graph: zoom", zoom(0.3, 6)],
  ["flame graph: zoom further", zoom(0.5, 9)],
  ["flame graph: back", press("Escape")],
  ["flame graph: search", search("f_1.*7")],
  ["flame graph: no search", noSearch],
  ["flame graph: brush", brush(0.1, 0.6)],
  ["flame graph: whole", whole],
  ["flame graph: inverted", () => page.goto(address("flamegraph", "?metric=allocated&inverted=1"))],
  ["flame graph: collapsed", () => page.goto(address("flamegraph", "?metric=allocated&collapse=1"))],
  ["flame graph: with table", () => page.goto(address("flamegraph", "?metric=allocated&split=1"))],
  ["flame graph: theme", press("t")],
  ["flame graph: theme again", press("t")],
  ["call tree: open", view("c")],
  ["call tree: all open", press("*")],
  ["call tree: wheel", wheel],
  ["call tree: search", search("f_1")],
  ["call tree: no search", noSearch],
  ...TABLE("u", "functions", "f_1"),
  ...TABLE("s", "sites", "f_1"),
  ["sites: brush", brush(0.3, 0.7)],
  ["sites: whole", whole],
  ...TABLE("l", "leaks", "f_1"),
  ["leaks: one row a site", () => page.goto(address("leaks", "?persite=1"))],
  ["lifetimes: open", view("i")],
  ["lifetimes: search", search("f_1")],
  ["lifetimes: no search", noSearch],
  ...TABLE("a", "allocations", "f_1"),
  ["threads: open", view("t")],
  ["compare: open", view("d")],
  ["compare: wheel", wheel],
  ["compare: graph", () => page.goto(address("compare", "?graph=1"))],
  ["memory: open", view("m")],
  ["pins: open", view("p")],
  ["heap map: open", view("h")],
  ["heap map: brush", brush(0.2, 0.6)],
  ["heap map: whole", whole],
  ["churn: open", view("n")],
  ["churn: wheel", wheel],
  ["churn: last row", end],
  ["SQL: open", view("q")],
  ["SQL: run", press("Control+Enter")],
  ["recording: open", view("r")],
  ["overview: again", view("o")],
  ["timeline: tracks", () => page.goto(address("functions", "?tracks=count,threads"))],
  [
    "timeline: wheel",
    async () => {
      const box = await surface();
      await page.mouse.move(box.x + 400, box.y + 30);
      for (let i = 0; i < 8; i += 1) await page.mouse.wheel(0, -200);
    },
  ],
];

const found = [];
const left = [];
let walked = 0;
for (const [name, step] of STEPS) {
  if (!ONLY.test(name) && name !== "first visit") continue;
  walked += 1;
  const tasks = await longTasks(browser, page, async () => {
    await step().catch((error) => left.push(`${name}: ${String(error.message).split("\n")[0]}`));
    await calm();
  });
  for (const task of tasks) found.push({ step: name, ...task });
}

/** From letting go to the picture that has the answer. */
const redraws = [];
if (ONLY.test("brush")) {
  await page.goto(address("flamegraph", "?metric=allocated"));
  await calm();
  const box = await surface();
  const x = (part) => box.x + 70 + part * (box.width - 94);
  for (let i = 0; i < BRUSHES; i += 1) {
    const from = (i * 0.61803) % 0.7;
    const to = from + 0.05 + ((i * 0.377) % 0.25);
    await page.evaluate(() => {
      const chart = document.querySelector(".flame-chart");
      const before = chart.dataset.drawn;
      let released;
      window.redrawn = new Promise((done) => {
        const look = () => {
          const waits = document.querySelector(".flame-view > .answer[data-stale]") || chart.dataset.drawn === before;
          if (released === undefined || waits) return;
          observer.disconnect();
          // The task behind the frame that shows it.
          requestAnimationFrame(() => {
            const { port1, port2 } = new MessageChannel();
            port1.onmessage = () => done(performance.now() - released);
            port2.postMessage(null);
          });
        };
        const observer = new MutationObserver(look);
        observer.observe(document.querySelector(".flame-view"), {
          subtree: true,
          attributes: true,
          attributeFilter: ["data-drawn", "data-stale"],
        });
        const release = (event) => {
          released = event.timeStamp;
          setTimeout(look);
        };
        window.addEventListener("pointerup", release, { once: true, capture: true });
      });
    });
    await page.mouse.move(x(from), box.y + 30);
    await page.mouse.down();
    await page.mouse.move(x((from + to) / 2), box.y + 30);
    await page.mouse.move(x(to), box.y + 30);
    await page.mouse.up();
    redraws.push(await page.evaluate(() => window.redrawn));
    await settled();
    await page.waitForTimeout(80);
  }
}
await browser.close();

const quantile = (values, part) =>
  [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(part * values.length))];
const ms = (value) => `${value.toFixed(0)} ms`;
if (redraws.length > 0)
  console.log(
    `pointer up to the new picture          p50 ${ms(quantile(redraws, 0.5))}, p95 ${ms(quantile(redraws, 0.95))} (${BRUSHES} brushes; goal p95 100 ms)`,
  );
const over = (of) => found.filter((task) => task[of] > LIMIT_MS);
const longest = (of) => Math.max(0, ...found.map((task) => task[of]));
console.log(
  `tasks of the main thread above ${LIMIT_MS} ms   ${over("cpu").length} by processor time, longest ${ms(longest("cpu"))}; ${over("wall").length} by the clock, longest ${ms(longest("wall"))} (${walked} steps; goal none)`,
);
for (const { step, cpu, wall, place } of [...found].sort((a, b) => b.cpu - a.cpu).slice(0, WORST))
  console.log(`  ${ms(cpu).padStart(7)} (${ms(wall)} by the clock)  ${step}: ${place}`);
for (const text of left) console.log(`  left out: ${text}`);
