import { expect, test } from "vitest";
import type { HeapMap } from "../../src/api/types.ts";
import { addressesOf, cellAt, gapsOf, momentOf, paintOf, siteOf } from "../../src/features/map/cells.ts";

const map: HeapMap = {
  schema: "heaptrace.map/1",
  from_ns: 0,
  to_ns: 40,
  t_ns: [10, 20, 30, 40],
  look_ns: [9, 9, 31, 31],
  row_bytes: 4096,
  addresses: [0x1000, 0x2000, 0x9000],
  occupied: [
    [0, 4096, 2048, 0],
    [0, 0, 16, 16],
    [8, 8, 8, 8],
  ],
  resident: [
    [0, 4096, 4096, 4096],
    [0, 0, 4096, 4096],
    [4096, 4096, 4096, 4096],
  ],
  dominant: [
    [null, 0, 1, null],
    [null, null, 0, 0],
    [null, 12, 12, 12],
  ],
  sites: [
    { id: "s4", function: "fill", file: null, line: null, module: "app", cells: 3 },
    { id: "s9", function: null, file: null, line: null, module: "app", cells: 1 },
  ],
  total_sites: 3,
  exactness: { events: 1, lost_events: 0, damaged_blocks: 0, watermark_ns: 40, complete: true },
};

test("the lowest addresses are at the bottom", () => {
  expect(cellAt(map, 0, 0)).toEqual({ row: 2, column: 0 });
  expect(cellAt(map, 0.99, 0.99)).toEqual({ row: 0, column: 3 });
  expect(cellAt(map, 1.5, -1)).toEqual({ row: 2, column: 3 });
});

test("a patch is a range of addresses and its last moment, whatever corner it began at", () => {
  const patch = { row: 1, rowTo: 0, column: 2, columnTo: 1 };
  expect(addressesOf(map, patch)).toBe("0x1000..0x3000");
  expect(momentOf(map, patch)).toBe(30);
});

test("colour is the site, strength how full; resident memory without blocks is grey, nothing is nothing", () => {
  expect(paintOf(map, 0, 0)).toBeUndefined();
  expect(paintOf(map, 0, 1)).toEqual({ color: "--layer-0", alpha: 1 });
  expect(paintOf(map, 0, 2)).toEqual({ color: "--layer-1", alpha: 0.625 });
  expect(paintOf(map, 0, 3)).toEqual({ color: "--grid", alpha: 1 });
  expect(paintOf(map, 2, 1)?.color).toBe("--layer-rest");
  expect(siteOf(map, 0, 1)?.function).toBe("fill");
  expect(siteOf(map, 2, 1)).toBeUndefined();
});

test("rows that are not neighbours have a gap between them", () => {
  expect(gapsOf(map)).toEqual([2]);
});
