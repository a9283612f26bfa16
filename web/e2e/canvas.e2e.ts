// The flame graph's canvas: what is drawn where, moving about, going through matches, keeping a frame's numbers.
import type { Page } from "playwright-core";
import { beforeAll, expect, inject, test } from "vitest";
import { readSearch } from "../src/lib/search-params.ts";
import { open, recordingOf, seriousFaults, settled, useBrowser } from "./browser.ts";

useBrowser();

let shop = "";
beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
});

const searchOf = (page: Page) => readSearch(new URL(page.url()).search);

/** What is seen of the graph's width: 0 to 1. */
async function view(page: Page): Promise<[number, number]> {
  const text = await page.locator(".flame-chart").getAttribute("data-view");
  const [left = 0, right = 0] = (text ?? "").split(" ").map(Number);
  return [left, right];
}

/** Begins to watch, and returns how to wait for what `look`, which runs in the page, sees at the first change of the view. */
async function whenTheViewChanges<T>(page: Page, look: () => T): Promise<() => Promise<T>> {
  const watch = await page.evaluateHandle<{ first: Promise<T> }>(`({
    first: new Promise((done) => {
      const observer = new MutationObserver(() => done((${look})()));
      observer.observe(document.querySelector(".flame-chart"), { attributeFilter: ["data-view"] });
    }),
  })`);
  return () => watch.evaluate(({ first }) => first) as Promise<T>;
}

/** Red, green, blue of a point of the frames' canvas, in pixels of the page. */
async function pixel(page: Page, x: number, y: number): Promise<number[]> {
  return page.locator(".flame-frames").evaluate(
    (canvas, at) => {
      if (!(canvas instanceof HTMLCanvasElement)) throw new Error("no canvas");
      const box = canvas.getBoundingClientRect();
      const ratio = canvas.width / box.width;
      const data = canvas.getContext("2d")?.getImageData((at.x - box.x) * ratio, (at.y - box.y) * ratio, 1, 1).data;
      return [...(data ?? [])];
    },
    { x, y },
  );
}

async function boxOf(page: Page, selector: string) {
  const box = await page.locator(selector).first().boundingBox();
  if (!box) throw new Error(`no ${selector}`);
  return box;
}

test("a zoom leaves the timeline and the filters as they are, and links lead to the frame", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  await page.evaluate(() => {
    const changes: string[] = [];
    Object.assign(window, { changes });
    const observer = new MutationObserver((all) => {
      for (const { target, type } of all) changes.push(`${type} of ${target.nodeName}`);
    });
    const options = { subtree: true, attributes: true, childList: true, characterData: true };
    for (const part of document.querySelectorAll(".filter-bar, .timeline-host")) observer.observe(part, options);
  });
  await page.locator(".flame-chart").focus();
  for (let i = 0; i < 3; i += 1) await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect.poll(() => searchOf(page).root).toBeDefined();
  await settled(page);
  expect(await page.evaluate(() => (window as unknown as { changes: string[] }).changes)).toEqual([]);
  const { root } = searchOf(page);
  const link = await page.getByRole("link", { name: "Call tree", exact: true }).getAttribute("href");
  expect(readSearch(new URL(link ?? "", page.url()).search)).toEqual({ metric: "allocated", root });
});

test.each(["light", "dark"] as const)("every frame has its colour on the canvas, in the %s theme", async (theme) => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`, { theme });
  await settled(page);
  await expect.poll(() => page.locator(".flame-items .frame").count()).toBeGreaterThan(3);
  const wide = await page.locator(".flame-items .frame").evaluateAll((frames) =>
    frames
      .map((frame) => {
        const { x, y, width, height } = frame.getBoundingClientRect();
        const probe = document.createElement("canvas").getContext("2d", { colorSpace: "srgb" });
        if (probe) probe.fillStyle = frame.getAttribute("data-fill") ?? "";
        probe?.fillRect(0, 0, 1, 1);
        return { x, y, width, height, fill: [...(probe?.getImageData(0, 0, 1, 1).data ?? [])] };
      })
      .filter((frame) => frame.width > 60 && frame.y + frame.height < window.innerHeight - 90),
  );
  expect(wide.length).toBeGreaterThan(3);
  // Near the right edge, where names seldom reach, and above the line of the text.
  // The page converts colours itself: it may round to the next byte.
  for (const { x, y, width, fill } of wide) {
    const drawn = await pixel(page, x + width - 4, y + 2);
    const apart = Math.max(...drawn.map((byte, i) => Math.abs(byte - (fill[i] ?? 0))));
    expect(apart, `${drawn} for ${fill}`).toBeLessThanOrEqual(1);
  }
  expect(await seriousFaults(page)).toEqual([]);
});

test("w and s zoom, a and d go sideways, the wheel with Ctrl zooms about the pointer, a drag moves", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  await page.locator(".flame-chart").focus();
  await expect.poll(() => view(page)).toEqual([0, 1]);
  await page.keyboard.press("w");
  await page.keyboard.press("w");
  await expect.poll(async () => (await view(page))[1] - (await view(page))[0]).toBeCloseTo(0.49, 3);
  const [left] = await view(page);
  await page.keyboard.press("d");
  await expect.poll(async () => (await view(page))[0]).toBeCloseTo(left + 0.2 * 0.49, 3);
  await page.keyboard.press("a");
  await expect.poll(async () => (await view(page))[0]).toBeCloseTo(left, 3);
  for (let i = 0; i < 3; i += 1) await page.keyboard.press("s");
  await expect.poll(() => view(page)).toEqual([0, 1]);
  const chart = await boxOf(page, ".flame-chart");
  const about = 0.25;
  await page.mouse.move(chart.x + chart.width * about, chart.y + 60);
  await page.keyboard.down("Control");
  await page.mouse.wheel(0, -400);
  await page.keyboard.up("Control");
  await expect.poll(async () => (await view(page))[1]).toBeLessThan(0.9);
  const [from, to] = await view(page);
  expect(from + (to - from) * about).toBeCloseTo(about, 2);
  await page.mouse.down();
  await page.mouse.move(chart.x + chart.width * (about - 0.1), chart.y + 60, { steps: 4 });
  await page.mouse.up();
  await expect.poll(async () => (await view(page))[0]).toBeGreaterThan(from);
  // A drag is no click.
  expect(searchOf(page).root).toBeUndefined();
});

test("the small picture above the graph moves what is seen", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  await page.locator(".flame-chart").focus();
  for (let i = 0; i < 5; i += 1) await page.keyboard.press("w");
  const map = await boxOf(page, ".flame-minimap");
  await page.mouse.move(map.x + map.width * 0.9, map.y + 10);
  await page.mouse.down();
  await page.mouse.move(map.x + map.width * 0.2, map.y + 10, { steps: 3 });
  await page.mouse.up();
  const [left, right] = await view(page);
  expect((left + right) / 2).toBeCloseTo(0.2, 2);
});

test("a zoom takes away what is lit under the pointer: it lies elsewhere now", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await page.emulateMedia({ reducedMotion: "no-preference" });
  await settled(page);
  await page.locator(".flame-items .frame[aria-level='3']").first().hover({ force: true });
  await page.waitForSelector(".frame-tip");
  await expect.poll(() => page.locator(".flame-items [data-lit]").count()).toBeGreaterThan(0);
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  await page.locator(".flame-chart").focus();
  await page.keyboard.press("w");
  await expect.poll(() => page.locator(".frame-tip").count()).toBe(0);
  expect(await page.locator(".flame-items [data-lit]").count()).toBe(0);
});

test("n and N, Enter and Shift + Enter go from match to match", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated&q=e`);
  await settled(page);
  const result = page.locator(".search-result output");
  await expect.poll(() => result.textContent()).toMatch(/frames?$/);
  const count = Number(/([\d,]+) frames?$/.exec((await result.textContent()) ?? "")?.[1]?.replace(",", ""));
  expect(count).toBeGreaterThan(2);
  await page.locator(".flame-chart").focus();
  await page.keyboard.press("n");
  await expect.poll(() => result.textContent()).toContain(`1 of ${count.toLocaleString("en-US")}`);
  const first = await page.locator(".details-name").textContent();
  await page.keyboard.press("n");
  await expect.poll(() => result.textContent()).toContain("2 of");
  await page.keyboard.press("N");
  await expect.poll(() => page.locator(".details-name").textContent()).toBe(first);
  await page.keyboard.press("N");
  await expect.poll(() => result.textContent()).toContain(`${count.toLocaleString("en-US")} of`);
  await page.locator("input[type=search]").focus();
  await page.keyboard.press("Enter");
  await expect.poll(() => result.textContent()).toContain("1 of");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.press("Shift+Enter");
  await expect.poll(() => result.textContent()).toContain(`${(count - 1).toLocaleString("en-US")} of`);
  // Whatever the match is, it can be seen.
  const active = await page.locator(".flame-chart").getAttribute("aria-activedescendant");
  const box = await boxOf(page, `#${active}`);
  expect(box.width).toBeGreaterThan(2);
});

test("a frame's numbers stay with p and with Shift + click, until Escape", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  await page.locator(".flame-chart").focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("p");
  const pinned = page.locator(".frame-tip-pinned");
  await expect.poll(() => pinned.count()).toBe(1);
  expect(searchOf(page).metric).toBe("allocated");
  const name = await page.locator(".details-name").textContent();
  expect(await pinned.textContent()).toContain(name);
  expect(await seriousFaults(page)).toEqual([]);
  await pinned.getByRole("button", { name: "Close" }).focus();
  await page.keyboard.press("Escape");
  await expect.poll(() => pinned.count()).toBe(0);
  expect(await page.evaluate(() => document.activeElement?.className)).toContain("flame-chart");
  await page
    .locator(".flame-chart .frame[aria-level='3']")
    .first()
    .click({ force: true, modifiers: ["Shift"] });
  await expect.poll(() => pinned.count()).toBe(1);
  expect(searchOf(page).root).toBeUndefined();
});

test("letters are about the frame under the pointer where the keyboard is nowhere else", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  await page.locator(".flame-chart .frame[aria-level='3']").first().hover({ force: true });
  await page.waitForSelector(".frame-tip");
  expect(await page.evaluate(() => document.activeElement === document.body)).toBe(true);
  const name = await page.locator(".details-name").textContent();
  await page.keyboard.press("p");
  const pinned = page.locator(".frame-tip-pinned");
  await expect.poll(() => pinned.count()).toBe(1);
  expect(await pinned.textContent()).toContain(name);
  expect(searchOf(page).metric).toBe("allocated");
  // Wherever the keyboard is, Escape takes it away.
  await page.keyboard.press("Escape");
  await expect.poll(() => pinned.count()).toBe(0);
  // The same where the keyboard is in the graph, until it walks on from there.
  await page.locator(".flame-chart .frame[aria-level='1']").first().focus();
  await page.locator(".flame-chart .frame[aria-level='3']").first().hover({ force: true });
  await page.waitForSelector(".frame-tip");
  await page.keyboard.press("p");
  await expect.poll(() => pinned.textContent()).toContain(name);
  await page.keyboard.press("Escape");
  await expect.poll(() => pinned.count()).toBe(0);
  // Beside the graph the letter is the page's.
  await page.mouse.move(5, 5);
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  await page.keyboard.press("p");
  await expect.poll(() => searchOf(page).metric).toBe("peak");
});

test.skipIf(inject("mock"))(
  "a transform's letter is about the frame under the pointer; the letter after a g is a view's",
  async () => {
    const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
    await settled(page);
    const over = async () => {
      await page.locator(".flame-chart .frame[aria-level='3']").first().hover({ force: true });
      await page.waitForSelector(".frame-tip");
    };
    await over();
    await page.keyboard.press("m");
    await expect.poll(() => page.url()).toContain("transform=merge-function");
    expect(searchOf(page).metric).toBe("allocated");
    await settled(page);
    await over();
    await page.keyboard.press("g");
    await page.keyboard.press("m");
    await expect.poll(() => new URL(page.url()).pathname).toMatch(/memory$/);
  },
);

test("colours are by what tells the frames apart, or by what the user chose; the legend says so", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const choice = page.locator(".flame-legend select");
  await expect.poll(() => choice.locator("option").first().textContent()).toMatch(/\(automatic\)/);
  const fills = async () =>
    new Set(
      await page.locator(".flame-items .frame").evaluateAll((all) => all.map((one) => one.getAttribute("data-fill"))),
    );
  await choice.selectOption("function");
  await expect.poll(() => searchOf(page).color).toBe("function");
  await settled(page);
  await expect.poll(() => page.locator(".flame-legend li").count()).toBeGreaterThan(2);
  await expect.poll(async () => (await fills()).size).toBeGreaterThan(4);
  const byFunction = await fills();
  await choice.selectOption("module");
  await expect.poll(async () => [...(await fills())].sort()).not.toEqual([...byFunction].sort());
});

test("a screen with finer pixels gets them, and a smaller window a smaller canvas", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  const size = () =>
    page.locator(".flame-frames").evaluate((canvas) => {
      if (!(canvas instanceof HTMLCanvasElement)) throw new Error("no canvas");
      return [canvas.width / canvas.getBoundingClientRect().width, canvas.getBoundingClientRect().width];
    });
  const [ratio = 0, wide = 0] = await size();
  expect(ratio).toBeCloseTo(1, 2);
  const session = await page.context().newCDPSession(page);
  await session.send("Emulation.setDeviceMetricsOverride", {
    width: 1000,
    height: 700,
    deviceScaleFactor: 2,
    mobile: false,
  });
  await expect.poll(async () => (await size())[0]).toBeCloseTo(2, 2);
  await expect.poll(async () => (await size())[1]).toBeLessThan(wide - 200);
});

/** The middle of a frame that is narrower than the whole. */
async function narrowFrame(page: Page): Promise<{ x: number; y: number }> {
  const narrow = await page.locator(".flame-items .frame").evaluateAll((frames) => {
    const width = document.querySelector(".flame-chart")?.clientWidth ?? 0;
    const boxes = frames.map((frame) => frame.getBoundingClientRect());
    const box = boxes.find((one) => one.width > 60 && one.width < 0.8 * width);
    return box && { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  });
  if (!narrow) throw new Error("no frame to zoom to");
  return narrow;
}

test("a zoom moves the picture first; the address follows behind it", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  await page.locator(".flame-chart").focus();
  await expect.poll(() => view(page)).toEqual([0, 1]);
  const address = await whenTheViewChanges(page, () => location.search);
  const narrow = await narrowFrame(page);
  await page.mouse.click(narrow.x, narrow.y);
  expect(await address()).not.toContain("root=");
  await expect.poll(() => searchOf(page).root).toBeGreaterThan(0);
  await settled(page);
  const [left, right] = await view(page);
  expect(right - left).toBeLessThan(0.99);
});

test("the address follows at the end of a way that is shown, and before whatever is pressed on the way", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  await page.emulateMedia({ reducedMotion: "no-preference" });
  await page.locator(".flame-chart").focus();
  const narrow = await narrowFrame(page);
  const during = await whenTheViewChanges(
    page,
    () =>
      new Promise<string>((done) => {
        // The second picture from here on is on the way.
        requestAnimationFrame(() => requestAnimationFrame(() => done(location.search)));
      }),
  );
  await page.mouse.click(narrow.x, narrow.y);
  expect(await during()).not.toContain("root=");
  await expect.poll(() => searchOf(page).root).toBeGreaterThan(0);
  await settled(page);
  const { root } = searchOf(page);
  await page.keyboard.press("Escape");
  await settled(page);
  await expect.poll(() => view(page)).toEqual([0, 1]);

  // A key on the way finds the address of the zoom: it leads out of the frame, and Back into it.
  const onTheWay = await whenTheViewChanges(page, () => location.search);
  await page.mouse.click(narrow.x, narrow.y);
  expect(await onTheWay()).not.toContain("root=");
  await page.keyboard.press("Escape");
  await page.waitForTimeout(700);
  await settled(page);
  expect(searchOf(page).root).toBeUndefined();
  await page.goBack();
  await expect.poll(() => searchOf(page).root).toBe(root);
});

test.each(["reduce", "no-preference"] as const)(
  "the way out of a zoom leads back to the same picture and items, motion: %s",
  async (reducedMotion) => {
    const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
    await settled(page);
    await page.emulateMedia({ reducedMotion });
    await page.mouse.move(5, 5);
    const seen = async () => {
      await settled(page);
      await expect.poll(() => page.locator(".flame-moving").evaluate((box) => box.getAnimations().length)).toBe(0);
      return page.evaluate(() => ({
        picture: document.querySelector<HTMLCanvasElement>(".flame-frames")?.toDataURL(),
        items: [...document.querySelectorAll(".flame-items .frame")]
          .map((item) => [...item.attributes].map(({ name, value }) => `${name}=${value}`).sort())
          .map((attributes) => attributes.join(" "))
          .sort(),
      }));
    };
    const before = await seen();
    const narrow = await narrowFrame(page);
    const zoom = async () => {
      await page.mouse.click(narrow.x, narrow.y);
      await expect.poll(() => searchOf(page).root).toBeGreaterThan(0);
      await page.mouse.move(5, 5);
      return seen();
    };
    const inside = await zoom();
    expect(inside.picture).not.toBe(before.picture);
    await page.keyboard.press("Escape");
    await expect.poll(() => searchOf(page).root).toBeUndefined();
    expect(await seen()).toEqual(before);

    // What was searched meanwhile is seen in what was kept.
    await zoom();
    await page.locator("input[type=search]").fill("cache");
    await expect.poll(() => searchOf(page).q).toBe("cache");
    await page.getByRole("button", { name: "all", exact: true }).click();
    await expect.poll(() => searchOf(page).root).toBeUndefined();
    await page.mouse.move(5, 5);
    const searched = await seen();
    expect(searched.picture).not.toBe(before.picture);
    expect(await page.locator(".flame-items [data-match]").count()).toBeGreaterThan(0);
    await page.locator("input[type=search]").fill("");
    await expect.poll(() => searchOf(page).q).toBeUndefined();
    await expect.poll(async () => (await seen()).picture).toBe(before.picture);
    expect(await page.locator(".flame-items [data-match]").count()).toBe(0);
  },
);

test("a canvas that shows nothing is not there: browsers copy every other one with each picture of the page", async () => {
  const page = await open(`/r/${shop}/flamegraph?metric=allocated`);
  await settled(page);
  await page.mouse.move(5, 5);
  const shown = () =>
    page
      .locator(".flame-stage canvas")
      .evaluateAll((all) =>
        all.filter((one) => one.checkVisibility({ visibilityProperty: true })).map((one) => one.className),
      );
  await expect.poll(shown).toEqual(["flame-frames", "flame-minimap"]);
  await page.locator(".flame-items .frame[aria-level='3']").first().hover({ force: true });
  await expect.poll(shown).toContain("flame-marks");
  await page.mouse.move(5, 5);
  await expect.poll(shown).toEqual(["flame-frames", "flame-minimap"]);
  // While the graph goes to another view the picture from before is behind the next one.
  await page.emulateMedia({ reducedMotion: "no-preference" });
  await page.locator(".flame-chart").focus();
  const during = await whenTheViewChanges(page, () =>
    document.querySelector(".flame-before")?.checkVisibility({ visibilityProperty: true }),
  );
  await page.keyboard.press("w");
  expect(await during()).toBe(true);
  await expect.poll(shown).not.toContain("flame-before");
  expect(await page.locator(".flame-stage").evaluate((stage) => stage.getAnimations({ subtree: true }).length)).toBe(0);
});
