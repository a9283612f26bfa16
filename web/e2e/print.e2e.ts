// On paper: everything that is on the screen, and nothing that can only be clicked.
import { beforeAll, expect, test } from "vitest";
import { open, recordingOf, settled, useBrowser } from "./browser.ts";

useBrowser();
let shop = "";
beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
});

/** Width of a sheet of A4 between its margins, in pixels. */
const PAPER = 718;

test.each(["functions?metric=allocated&focus=.", "sites", "leaks", "threads", "compare", "allocations", "overview"])(
  "%s: no row and no column is cut off, no button is printed",
  async (view) => {
    const page = await open(`/r/${shop}/${view}`, { width: PAPER, height: 1000 });
    await settled(page);
    const rows = await page.locator(".table-body .table-row").count();
    await page.emulateMedia({ media: "print" });
    // The browser applies the styles of paper a moment later.
    await page.waitForFunction(() =>
      [...document.querySelectorAll(".table")].every(
        (table) => getComputedStyle(table).getPropertyValue("zoom") !== "1",
      ),
    );
    const faults = await page.evaluate((width) => {
      const found: string[] = [];
      for (const cell of document.querySelectorAll(".table .cell")) {
        const { left, right, height } = cell.getBoundingClientRect();
        if (height > 0 && (left < 0 || right > width + 1)) found.push(`${cell.textContent} ends at ${right}`);
      }
      for (const table of document.querySelectorAll(".table")) {
        const bottom = table.getBoundingClientRect().bottom;
        for (let box = table.parentElement; box; box = box.parentElement)
          if (getComputedStyle(box).overflowY !== "visible" && box.getBoundingClientRect().bottom < bottom - 1)
            found.push(`${box.className} cuts the table`);
      }
      for (const button of document.querySelectorAll(
        "main .button, .segmented label:not(:has(:checked)), .filter-bar input, .timeline-bar .button, .timeline-bar .side-label",
      ))
        if (button.getBoundingClientRect().height > 0) found.push(`printed: ${button.textContent}`);
      return found;
    }, PAPER);
    expect(faults).toEqual([]);
    // Rows follow one another.
    const tops = await page
      .locator(".table-body .table-row")
      .evaluateAll((all) => all.map((one) => [one.getBoundingClientRect().top, one.getBoundingClientRect().bottom]));
    expect(tops.length).toBe(rows);
    for (const [i, [top = 0]] of tops.entries()) {
      const before = tops.slice(0, i).filter(([, bottom = 0]) => bottom > top + 1 && bottom < top + 20);
      expect(before).toEqual([]);
    }
    if (view.includes("focus")) expect(await page.locator(".chip:visible").count()).toBe(1);
  },
);

/** What does not fit at the moment at which the browser lays the page out for paper, from a screen of 1440 pixels. */
test.each([
  "functions?metric=allocated",
  "leaks",
  "churn",
  "pins",
  "overview",
  "memory",
  "flamegraph?metric=allocated",
])("%s: a light sheet has every row that was on the screen, and no chart covers what is beside it", async (view) => {
  const page = await open(`/r/${shop}/${view}`, { theme: "dark", width: 1440, height: 900 });
  await settled(page);
  await page.evaluate(() => {
    const faults: string[] = ["was not printed"];
    Object.assign(window, { faults });
    const look = () => {
      faults.length = 0;
      if (document.documentElement.dataset["theme"] !== "light") faults.push("the sheet is dark");
      for (const canvas of document.querySelectorAll(".flame-chart .flame-frames")) {
        const host = canvas.closest(".flame-chart")?.getBoundingClientRect();
        const { right } = canvas.getBoundingClientRect();
        if (!host || right > host.right + 1) faults.push(`frames end at ${right} in ${host?.right}`);
      }
      for (const row of document.querySelectorAll(".table-body .table-row, .table-head .table-row")) {
        const { top, bottom } = row.getBoundingClientRect();
        for (let box = row.parentElement; box; box = box.parentElement) {
          const { overflowY, contain } = getComputedStyle(box);
          const cuts = overflowY !== "visible" || /strict|content|paint|size/.test(contain);
          const edges = box.getBoundingClientRect();
          if (cuts && (edges.top > top + 1 || edges.bottom < bottom - 1))
            faults.push(`${box.className} of ${edges.height} pixels cuts ${row.textContent}`);
        }
      }
      for (const canvas of document.querySelectorAll(".uplot canvas")) {
        const host = canvas.closest(".time-chart")?.parentElement?.getBoundingClientRect();
        const { right, width } = canvas.getBoundingClientRect();
        if (!host || right > host.right + 1) faults.push(`a chart ends at ${right} in ${host?.right}`);
        // Drawn for this width, and not made narrow.
        const drawn = (canvas as HTMLCanvasElement).width / devicePixelRatio;
        if (Math.abs(drawn - width) > 2) faults.push(`a chart drawn for ${drawn} has ${width}`);
      }
    };
    matchMedia("print").addEventListener("change", (paper) => {
      // Behind what the page itself does then.
      if (paper.matches) queueMicrotask(() => queueMicrotask(look));
    });
  });
  await page.pdf({ format: "A4" });
  expect(await page.evaluate(() => (window as unknown as { faults: string[] }).faults)).toEqual([]);
});
