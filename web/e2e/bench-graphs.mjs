// Moving about in a flame graph, the page's and speedscope's on the same data: main-thread work in processor time, so that
// other programs count little, and the time from the input to the picture that answers it. node e2e/bench-graphs.mjs URL FOLDED SPEEDSCOPE, where SPEEDSCOPE is the folder of
// its built page. Used by bench.sh; a command, not a test.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { chromium } from "playwright-core";

const [url, folded, speedscope] = process.argv.slice(2);
if (!url) throw new Error("usage: node e2e/bench-graphs.mjs URL [FOLDED SPEEDSCOPE]");
const STEPS = Number(process.env.STEPS ?? 40);

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});

/** A page, and the work of what is done in it. */
async function open(address) {
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const work = async () => {
    const { metrics } = await session.send("Performance.getMetrics");
    return metrics.find(({ name }) => name === "TaskDuration").value * 1000;
  };
  await page.addInitScript(() => {
    window.answered = [];
    window.blocked = [];
    // Steps of 8 ms; nothing is reported below 16.
    new PerformanceObserver((list) => {
      for (const { startTime, duration } of list.getEntries()) window.answered.push([startTime, duration]);
    }).observe({ type: "event", durationThreshold: 16 });
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) window.blocked.push(duration);
    }).observe({ type: "longtask" });
  });
  await page.goto(address);
  /** Work of an action and of `rest` milliseconds after it, less that of as long a rest. */
  const cost = async (action, rest) => {
    const idle = await work();
    await page.waitForTimeout(rest);
    const before = await work();
    const began = await page.evaluate(() => performance.now());
    await action();
    await page.waitForTimeout(rest);
    const after = await work();
    // Of one action several events are reported: those of a key, those of a click.
    const answer = await page.evaluate(
      (from) => Math.max(8, ...window.answered.filter(([start]) => start >= from).map(([, duration]) => duration)),
      began,
    );
    return { work: after - before - (before - idle), answer };
  };
  return { page, cost };
}

const at = (box, i, rows) => [
  box.x + box.width * ((i * 0.61803) % 0.9) + 5,
  box.y + 8 + 20 * (1 + (i % Math.max(2, rows))),
];

/** Where frames are, what zooms into one and out again, and what searches. */
async function measure({ page, cost }, { box, rows, zoomIn, zoomOut, search }) {
  const hovers = [];
  const zooms = [];
  const searches = [];
  for (let i = 0; i < STEPS; i += 1) {
    const point = at(box, i, rows);
    hovers.push(await cost(() => page.mouse.move(...point), 120));
    if (i % 4 !== 0) continue;
    zooms.push(await cost(() => zoomIn(...point), 900));
    zooms.push(await cost(zoomOut, 900));
  }
  for (const text of ["a", "al", "alloc", "m", "main", "0x1", "0x11", "xyz"])
    searches.push(await cost(() => search(text), 900));
  return { hovers, zooms, searches, blocked: await page.evaluate(() => window.blocked) };
}

const results = [];
{
  const opened = await open(`${url}/r/r1/flamegraph?metric=allocated`);
  const { page } = opened;
  await page.waitForFunction(
    () =>
      document.querySelector(".flame-items .frame") &&
      !document.querySelector("[data-stale], [data-refining], .skeleton"),
    undefined,
    { timeout: 120_000 },
  );
  await page.waitForTimeout(2500);
  const chart = await page.locator(".flame-chart").boundingBox();
  const box = { ...chart, y: chart.y + 36, height: chart.height - 36 };
  const rows = Math.min(20, Math.floor(box.height / 20) - 2);
  const figures = await measure(opened, {
    box,
    rows,
    zoomIn: (x, y) => page.mouse.click(x, y),
    zoomOut: () => page.keyboard.press("Escape"),
    search: (text) => page.locator("input[type=search]").fill(text),
  });
  results.push({ name: "page", frames: await page.locator(".flame-chart").getAttribute("data-frames"), ...figures });
  await page.close();
}

if (folded && speedscope) {
  const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm" };
  const server = createServer((request, response) => {
    const path = normalize(new URL(request.url, "http://x").pathname);
    try {
      const body = readFileSync(path === "/profile.folded" ? folded : join(speedscope, path));
      response.writeHead(200, { "content-type": types[extname(path)] ?? "application/octet-stream" });
      response.end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  const profile = encodeURIComponent(`http://127.0.0.1:${port}/profile.folded`);
  const opened = await open(`http://127.0.0.1:${port}/index.html#profileURL=${profile}&view=left-heavy`);
  const { page } = opened;
  await page.waitForSelector("canvas", { timeout: 300_000 });
  await page.waitForTimeout(4000);
  const canvases = await page.locator("canvas").evaluateAll((all) =>
    all.map((one) => {
      const { x, y, width, height } = one.getBoundingClientRect();
      return { x, y, width, height };
    }),
  );
  // Two canvases fill the window: below its tool bar and its small picture are the frames.
  const whole = canvases.reduce((a, b) => (a.width * a.height > b.width * b.height ? a : b));
  const box = { ...whole, y: Math.max(whole.y, 150), height: whole.height - 150 };
  const figures = await measure(opened, {
    box,
    rows: 20,
    zoomIn: (x, y) => page.mouse.dblclick(x, y),
    zoomOut: () => page.keyboard.press("0"),
    search: async (text) => {
      await page.keyboard.press("Control+f");
      await page.keyboard.press("Control+a");
      await page.keyboard.type(text);
    },
  });
  if (process.env.PICTURE) await page.screenshot({ path: process.env.PICTURE });
  results.push({ name: "speedscope", frames: "all", ...figures });
  server.close();
}
await browser.close();

const quantile = (values, part) =>
  [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(part * values.length))];
const table = (title, part) => {
  console.log(`${title.padEnd(47)}hover          zoom           search`);
  for (const { name, frames, hovers, zooms, searches } of results) {
    const cells = [hovers, zooms, searches].map((costs) => {
      const list = costs.map((one) => one[part]);
      return `${quantile(list, 0.5).toFixed(1)} / ${quantile(list, 0.95).toFixed(1)}`.padEnd(15);
    });
    console.log(`${name.padEnd(12)}${`${frames} frames`.padEnd(35)}${cells.join("")}`);
  }
};
table("main-thread processor time, p50 / p95 in ms", "work");
table("from the input to the next picture, the same", "answer");
for (const { name, blocked } of results)
  console.log(
    `${name.padEnd(12)}tasks above 50 ms, loading included: ${blocked.length}, longest ${Math.max(0, ...blocked).toFixed(0)} ms`,
  );
