// Everything to press is large enough for a finger, or has room around it, in every view.
import { beforeAll, expect, test } from "vitest";
import { VIEWS } from "../src/lib/search-params.ts";
import { open, recordingOf, settled, useBrowser } from "./browser.ts";
import { smallTargets } from "./targets.ts";

useBrowser();
let shop = "";
let bazaar = "";
let marked = "";
beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
  bazaar = (await recordingOf("bazaar")).id;
  marked = (await recordingOf("marked")).id;
});

test.each([1440, 390])(
  "nothing to press is too small at %i pixels",
  async (width) => {
    const page = await open("/", { width, height: 844 });
    const faults: string[] = [];
    const look = async (where: string, within?: string) => {
      for (const fault of await smallTargets(page, within)) faults.push(`${where}: ${fault}`);
    };
    await expect.poll(() => page.locator(".recordings tbody tr").count()).toBeGreaterThan(1);
    await look("/");
    const file = encodeURIComponent("shop.c");
    const paths = [
      ...VIEWS.map((view) => `/r/${shop}/${view}`),
      `/r/${marked}/recording`,
      `/r/${marked}/overview?at=0.2s`,
      `/r/${shop}/compare?other=${bazaar}&graph=1&metric=peak`,
      `/r/${shop}/compare?a=0.4s&b=0.55s`,
      `/r/${shop}/flamegraph?split=1&metric=allocated`,
      `/r/${shop}/flamegraph?sandwich=main&metric=allocated`,
      `/r/${shop}/flamegraph?metric=allocated&q=s`,
      `/r/${shop}/functions?metric=allocated&focus=.&ignore=zzz&min_size=16`,
      `/r/${shop}/sites?site=s0`,
      `/r/${shop}/source?file=${file}&metric=allocated`,
      `/r/${shop}/overview?window=0.1s-0.3s&tracks=count,threads`,
      "/r/r99/overview",
    ];
    for (const path of paths) {
      await page.goto(new URL(path, page.url()).href);
      if (!path.includes("r99")) await settled(page);
      await look(path.replace(/^\/r\/r\d+/, ""));
    }
    for (const [button, within] of [
      ["+ Filter", ".filter-bar"],
      ["Export", ".menu"],
    ] as const) {
      await page.goto(new URL(`/r/${shop}/functions`, page.url()).href);
      await settled(page);
      await page.getByRole("button", { name: button }).click();
      await look(button, within);
    }
    await page.keyboard.press("Escape");
    await page.keyboard.press("?");
    await look("the sheet of keys", ".sheet");
    expect(faults).toEqual([]);
  },
  180_000,
);
