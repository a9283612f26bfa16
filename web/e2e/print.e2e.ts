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
