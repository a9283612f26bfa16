// The heap map shows what the server says, and a choice of its cells filters the other views.
import { beforeAll, expect, inject, test } from "vitest";
import type { Functions, HeapMap } from "../src/api/types.ts";
import { api, open, recordingOf, seriousFaults, settled, useBrowser } from "./browser.ts";

useBrowser();

const mock = inject("mock");
let shop = "";
beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
});

test.skipIf(mock)("a cell of the heap map filters every view by address and instant", async () => {
  const map = await api<HeapMap>(`recordings/${shop}/map`);
  expect(map.addresses.length).toBeGreaterThan(1);
  const page = await open(`/r/${shop}/map`);
  await settled(page);
  await expect
    .poll(() => page.getByTestId("map-rows").textContent())
    .toContain(map.addresses.length.toLocaleString("en-US"));
  expect(await seriousFaults(page)).toEqual([]);
  const picture = page.locator(".map-picture");
  // It takes the room that its words leave; the cell under the pointer has a frame that is seen.
  expect(await picture.evaluate((one) => one.clientHeight)).toBeGreaterThan(300);
  await picture.hover();
  expect(await page.locator(".map-frame").evaluate((one) => getComputedStyle(one).borderTopStyle)).toBe("solid");
  const box = await picture.boundingBox();
  if (!box) throw new Error("the picture is not shown");
  // The lowest row is at the bottom.
  const column = Math.floor(map.t_ns.length / 2);
  await picture.click({
    position: {
      x: ((column + 0.5) / map.t_ns.length) * box.width,
      y: box.height - box.height / map.addresses.length / 2,
    },
  });
  await expect
    .poll(() => page.getByTestId("map-bar").textContent())
    .toContain(`0x${(map.addresses[0] ?? 0).toString(16)}`);
  await page.getByRole("button", { name: "Filter every view by it" }).click();
  const range = `0x${(map.addresses[0] ?? 0).toString(16)}..0x${((map.addresses[0] ?? 0) + map.row_bytes).toString(16)}`;
  await expect.poll(() => new URL(page.url()).searchParams.get("address")).toBe(range);
  expect(new URL(page.url()).searchParams.get("at")).not.toBeNull();
  const all = await api<Functions>(`recordings/${shop}/functions?at=${map.t_ns[column]}`);
  const few = await api<Functions>(`recordings/${shop}/functions?at=${map.t_ns[column]}&address=${range}`);
  expect(few.total).toBeLessThan(all.total);
});
