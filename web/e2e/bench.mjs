// What the page costs with a recording, in figures: node e2e/bench.mjs URL [recording id]. A command, not a test.
import { chromium } from "playwright-core";

const [url = process.env.HEAPTRACE_URL, recording = "r1"] = process.argv.slice(2);
if (!url) throw new Error("usage: node e2e/bench.mjs URL [recording id]");

const WINDOWS = 30;
/** Steps of each kind in the largest graph. */
const STEPS = 80;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--enable-precise-memory-info", "--js-flags=--expose-gc"],
});
const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
const address = (view, query = "") => `${url}/r/${recording}/${view}${query}`;
const settled = () =>
  page.waitForFunction(
    () =>
      document.querySelector("main.view") &&
      !document.querySelector("[data-stale], [data-refining], .skeleton, .timeline-blank") &&
      document.querySelector(".flame-chart .frame, .table-body [role=row], .fact"),
  );

// The index is there: first meaningful paint is the overview with its figures and curves. The first visit after the
// server began also waits for what the server makes once, of every recording.
const began = Date.now();
await page.goto(address("overview"));
await settled();
const visit = Date.now() - began;
const first = [];
for (let i = 0; i < 5; i += 1) {
  const begin = Date.now();
  await page.goto(address("overview"));
  await settled();
  first.push(Date.now() - begin);
}

// Brushes: from the last movement of the pointer to a flame graph of the new window.
await page.goto(address("flamegraph", "?metric=allocated"));
await settled();
const box = await page.locator(".timeline-surface").boundingBox();
const x = (part) => box.x + 70 + part * (box.width - 94);
const redraws = [];
for (let i = 0; i < WINDOWS; i += 1) {
  const from = (i * 0.61803) % 0.7;
  const to = from + 0.05 + ((i * 0.377) % 0.25);
  await page.mouse.move(x(from), box.y + 30);
  await page.mouse.down();
  await page.mouse.move(x((from + to) / 2), box.y + 30);
  await page.waitForTimeout(150);
  await settled();
  await page.evaluate(() => {
    const chart = document.querySelector(".flame-chart");
    const before = chart.dataset.drawn;
    window.redrawn = new Promise((done) => {
      const observer = new MutationObserver(() => {
        if (document.querySelector(".flame-view > .answer[data-stale]") || chart.dataset.drawn === before) return;
        observer.disconnect();
        // The frame that shows it.
        requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
      });
      observer.observe(chart, { subtree: true, attributes: true, attributeFilter: ["data-drawn", "data-stale"] });
    });
    window.addEventListener("pointermove", () => (window.moved = performance.now()), { once: true, capture: true });
  });
  await page.mouse.move(x(to), box.y + 31);
  redraws.push(await page.evaluate(async () => (await window.redrawn) - window.moved));
  await page.mouse.up();
  await settled();
}

// Typing into search: the longest time between two frames.
await page.goto(address("flamegraph", "?metric=allocated"));
await settled();
await page.evaluate(() => {
  window.gaps = [];
  let last = performance.now();
  const tick = () => {
    const now = performance.now();
    window.gaps.push(now - last);
    last = now;
    if (!window.enough) requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
});
await page.locator("input[type=search]").focus();
await page.keyboard.type("alloc|mall|main", { delay: 60 });
await page.waitForTimeout(1500);
const gaps = await page.evaluate(() => {
  window.enough = true;
  return window.gaps.slice(2);
});

// Main-thread work of moving about in a large graph, in processor time, so that other programs count little.
await page.goto(address("flamegraph", "?metric=allocated"));
await settled();
const session = await page.context().newCDPSession(page);
await session.send("Performance.enable", { timeDomain: "threadTicks" });
const work = async () => {
  const { metrics } = await session.send("Performance.getMetrics");
  return metrics.find(({ name }) => name === "TaskDuration").value * 1000;
};
/** Work of an action until nothing moves any more, and how many pictures were drawn for it. */
const cost = async (action, calm = 30) => {
  const drawn = () => page.locator(".flame-chart").evaluate((chart) => Number(chart.dataset.painted ?? 0));
  const pictures = await drawn();
  const before = await work();
  await action();
  for (let last = -1, now = await drawn(); last !== now; now = await drawn()) {
    last = now;
    await page.waitForTimeout(calm);
  }
  return { ms: (await work()) - before, pictures: (await drawn()) - pictures };
};
const chart = await page.locator(".flame-chart").boundingBox();
const frameRows = Math.max(3, Math.min(20, Math.floor((chart.height - 60) / 19)));
const zooms = [];
const hovers = [];
for (let i = 0; i < 40; i += 1) {
  const at = [chart.x + chart.width * ((i * 0.61803) % 0.9) + 5, chart.y + 36 + 19 * (2 + (i % (frameRows - 2))) + 8];
  hovers.push(await cost(() => page.mouse.move(...at), 20));
  if (i % 2 === 0) {
    await page.mouse.move(...at);
    await page.waitForTimeout(50);
    zooms.push(await cost(() => page.mouse.click(...at), 400));
    zooms.push(await cost(() => page.keyboard.press("Escape"), 400));
  }
}
const searches = [];
for (const text of ["a", "al", "alloc", "m", "main", "f_1", "f_1.*7", "xyz"])
  searches.push(await cost(() => page.locator("input[type=search]").fill(text), 500));

const rows = await page.locator(".flame-chart").getAttribute("data-frames");

// The same in the largest graph that the page takes: whatever is narrower than a pixel is sent, too. Steps of the wheel
// and of the keys, and movements of the pointer, each less the work of as long a rest.
await page.route("**/flamegraph?**", (route) => {
  const asked = new URL(route.request().url());
  asked.searchParams.set("min_px", "0");
  return route.continue({ url: asked.href });
});
await page.goto(address("flamegraph", "?metric=allocated"));
await settled();
await page.waitForTimeout(3000);
const largest = await page.locator(".flame-chart").getAttribute("data-frames");
/** Work of an action and of the pictures that come of it. */
const stepCost = async (action, rest) => {
  const drawn = () => page.locator(".flame-chart").evaluate((one) => Number(one.dataset.painted ?? 0));
  const pictures = await drawn();
  const idle = await work();
  await page.waitForTimeout(rest);
  const before = await work();
  await action();
  await page.waitForTimeout(rest);
  const spent = (await work()) - before - (before - idle);
  return { ms: Math.max(0, spent), pictures: (await drawn()) - pictures };
};
const wheels = [];
const keys = [];
const moves = [];
const wide = await page.locator(".flame-chart").boundingBox();
const within = (i) => [wide.x + wide.width * (0.05 + ((i * 0.61803) % 0.9)), wide.y + 60 + 19 * (i % (frameRows - 2))];
for (let i = 0; i < STEPS; i += 1) moves.push(await stepCost(() => page.mouse.move(...within(i)), 60));
await page.mouse.move(wide.x + wide.width * 0.4, wide.y + 100);
await page.keyboard.down("Control");
for (let i = 0; i < STEPS; i += 1) wheels.push(await stepCost(() => page.mouse.wheel(0, i % 20 < 10 ? -120 : 120), 60));
await page.keyboard.up("Control");
await page.locator(".flame-chart").focus();
for (let i = 0; i < STEPS; i += 1) {
  const key = ["w", "d", "w", "a", "s", "d", "s", "a"][i % 8];
  keys.push(await stepCost(() => page.keyboard.press(key), 260));
}

const heap = await page.evaluate(() => {
  window.gc?.();
  return performance.memory.usedJSHeapSize;
});
await browser.close();

const quantile = (values, part) =>
  [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(part * values.length))];
const ms = (value) => `${value.toFixed(0)} ms`;
console.log(`first meaningful paint, median of 5    ${ms(quantile(first, 0.5))}   (goal 1500 ms)`);
console.log(`the same, first visit after the start  ${ms(visit)}`);
console.log(
  `brush to redrawn flame graph           p50 ${ms(quantile(redraws, 0.5))}, p95 ${ms(quantile(redraws, 0.95))} (${WINDOWS} windows; goal p95 100 ms)`,
);
console.log(
  `between frames while typing in search  p50 ${ms(quantile(gaps, 0.5))}, p99 ${ms(quantile(gaps, 0.99))}, most ${ms(Math.max(...gaps))} (goal 33 ms)`,
);
const spread = (name, list, unit) =>
  console.log(
    `${name.padEnd(38)} p50 ${quantile(list, 0.5).toFixed(1)}, p95 ${quantile(list, 0.95).toFixed(1)} ms ${unit}`,
  );
const each = (list) => list.filter(({ pictures }) => pictures > 0).map(({ ms, pictures }) => ms / pictures);
spread("main thread: zoom, a picture", each(zooms), `(${each(zooms).length} zooms; goal 16 ms)`);
spread(
  "main thread: zoom, all of it",
  zooms.map(({ ms }) => ms),
  "",
);
spread(
  "main thread: hover, a movement",
  hovers.map(({ ms }) => ms),
  `(${hovers.length} movements; goal 16 ms)`,
);
spread(
  "main thread: search, a change",
  searches.map(({ ms }) => ms),
  `(${searches.length} changes, table and tiles included)`,
);
console.log(`frames in the graph                    ${rows}`);
console.log(`frames in the largest graph            ${largest}`);
spread("main thread: wheel zoom, a picture", each(wheels), `(${each(wheels).length} of ${STEPS} steps; goal 16 ms)`);
spread("main thread: w a s d, a picture", each(keys), `(${each(keys).length} of ${STEPS} steps; goal 16 ms)`);
spread(
  "main thread: hover, a movement",
  moves.map(({ ms }) => ms),
  `(${STEPS} movements; goal 16 ms)`,
);
console.log(`page heap                              ${(heap / 1048576).toFixed(0)} MiB (goal 200 MiB)`);
