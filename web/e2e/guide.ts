// Makes the pictures of docs/guide from a real recording of `programs/shop.c`.
import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import type { Page } from "playwright-core";
import { test } from "vitest";
import type { Sites } from "../src/api/types.ts";
import { api, open, recordingOf, settled, useBrowser } from "./browser.ts";

useBrowser();

const IMAGES = resolve(import.meta.dirname, "../../docs/guide/images");

interface Picture {
  name: string;
  view: string;
  query?: string;
  before?: (page: Page) => Promise<void>;
}

const hoverFrame = async (page: Page) => {
  await page.locator("g.frame[aria-level='4']").first().hover();
  await page.waitForSelector(".frame-tip");
};

const PICTURES: Picture[] = [
  { name: "overview", view: "overview" },
  { name: "timeline", view: "functions", query: "metric=allocated&window=0.3s-0.6s&tracks=count,threads" },
  { name: "flamegraph", view: "flamegraph", query: "metric=peak&ignore=recurse", before: hoverFrame },
  { name: "sandwich", view: "flamegraph", query: "metric=allocated&sandwich=session" },
  { name: "calltree", view: "calltree", query: "metric=allocated&ignore=recurse" },
  { name: "functions", view: "functions", query: "metric=allocated&ignore=recurse" },
  { name: "sites", view: "sites", query: "sort=allocated" },
  { name: "site", view: "sites", query: "site=SITE" },
  { name: "leaks", view: "leaks" },
  { name: "lifetimes", view: "lifetimes" },
  { name: "allocations", view: "allocations", query: "min_size=1000" },
  { name: "threads", view: "threads" },
  { name: "compare", view: "compare", query: "a=0.3s&b=0.5s" },
  { name: "recording", view: "recording" },
];

test("pictures", async () => {
  mkdirSync(IMAGES, { recursive: true });
  const shop = (await recordingOf("shop")).id;
  const site = (await api<Sites>(`recordings/${shop}/sites?sort=leaked&limit=1`)).sites[0]?.id ?? "s0";
  for (const { name, view, query = "", before } of PICTURES) {
    const page = await open(`/r/${shop}/${view}?${query.replace("SITE", site)}`, { width: 1280, height: 760 });
    await settled(page);
    await page.waitForTimeout(400);
    await before?.(page);
    await page.screenshot({ path: resolve(IMAGES, `page-${name}.png`) });
  }
});
