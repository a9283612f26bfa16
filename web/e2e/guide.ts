// Makes the pictures of docs/guide from a real recording of `programs/shop.c`.
import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Page } from "playwright-core";
import { inject, test } from "vitest";
import type { Functions, Sites } from "../src/api/types.ts";
import { api, open, openFile, recordingOf, settled, useBrowser } from "./browser.ts";

useBrowser();

const IMAGES = resolve(import.meta.dirname, "../../docs/guide/images");

interface Picture {
  name: string;
  view: string;
  query?: string;
  before?: (page: Page) => Promise<void>;
}

const hoverFrame = async (page: Page) => {
  await page.locator(".flame-chart .frame[aria-level='4']").first().hover({ force: true });
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
  { name: "difference", view: "compare", query: "other=OTHER&graph=1", before: hoverFrame },
  { name: "recording", view: "recording" },
  { name: "source", view: "source", query: "metric=allocated&line=26&file=SOURCE" },
];

test("pictures", async () => {
  mkdirSync(IMAGES, { recursive: true });
  const shop = (await recordingOf("shop")).id;
  const functions = await api<Functions>(`recordings/${shop}/functions?metric=allocated&search=session`);
  const source = functions.rows[0]?.file ?? "";
  const bazaar = (await recordingOf("bazaar")).id;
  const site = (await api<Sites>(`recordings/${shop}/sites?sort=leaked&limit=1`)).sites[0]?.id ?? "s0";
  for (const { name, view, query = "", before } of PICTURES) {
    const page = await open(
      `/r/${shop}/${view}?${query.replace("SITE", site).replace("OTHER", bazaar).replace("SOURCE", encodeURIComponent(source))}`,
      {
        width: 1280,
        height: 760,
      },
    );
    await settled(page);
    await page.waitForTimeout(400);
    await before?.(page);
    await page.screenshot({ path: resolve(IMAGES, `page-${name}.png`) });
  }
  const report = join(inject("folder"), "shop.html");
  const made = spawnSync(inject("heaptrace"), ["report", "memory-shop.dat", "-o", report], { cwd: inject("folder") });
  if (made.status !== 0) throw new Error(made.stderr.toString());
  const page = await openFile(report);
  await settled(page);
  await page.screenshot({ path: resolve(IMAGES, "page-report.png") });
});
