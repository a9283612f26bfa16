import { expect, test } from "vitest";
import { effectiveWindow, type PageSearch, readSearch, writeSearch } from "../../src/lib/search-params.ts";

const FULL: PageSearch = {
  window: { from: 1_500_000_000, to: 1_700_000_001 },
  zoom: [
    { from: 0, to: 9e9 },
    { from: 1e9, to: 2e9 },
  ],
  shown: { from: 1.2e9, to: 1.9e9 },
  at: 1_600_000_000,
  a: 5,
  b: 7,
  metric: "grown",
  unit: "count",
  filters: { focus: "^a&b=c #%+?$", module: "lib\\.so", min_size: "64k", lifetime: "freed" },
  q: "Vec<T> | größe",
  root: 4_294_967_295,
  inverted: true,
  ranges: [
    { from: 0, to: 5 },
    { from: 1_000_000_000, to: 2_500_000_000 },
  ],
  normalize: true,
  pinned: true,
  pins: "site",
  pin_unit: "slab",
  upwards: true,
  collapse: true,
  by: "module",
  sort: "-at_peak",
  selected: '<img src=x onerror="alert(1)">',
  site: "s12",
  other: "r2",
  tracks: ["count", "threads"],
  sandwich: "f(x)",
  patch: { row: 3, column: 0, rowTo: 1, columnTo: 12 },
  file: "/a b/c.rs",
  line: 12,
  sql: "SELECT a.size + b.size -- 100 %\nFROM blocks a, blocks b WHERE a.function = 'x&y=\"z\"'",
};

test("the whole state survives the URL", () => {
  expect(readSearch(writeSearch(FULL))).toEqual(FULL);
  expect(readSearch(`?${writeSearch(FULL)}`)).toEqual(FULL);
});

test("an empty state is an empty query", () => {
  expect(writeSearch({})).toBe("");
  expect(readSearch("")).toEqual({});
});

test("what cannot be understood is dropped, the rest is kept", () => {
  const hostile =
    "window=9s-1s&zoom=0s-1s~5s-6s&at=soon&metric=everything&unit=stones&root=-1&sort=__proto__%20&site=../x&other=1&tracks=cpu&lifetime=long&q=ok&by=cat&__proto__=1&inverted=true";
  expect(readSearch(hostile)).toEqual({ q: "ok" });
});

test("committed windows must lie inside of one another", () => {
  expect(readSearch("zoom=0s-9s~1s-2s").zoom).toHaveLength(2);
  expect(readSearch("zoom=1s-2s~0s-9s").zoom).toBeUndefined();
  expect(readSearch("zoom=1s-2s~nonsense").zoom).toBeUndefined();
});

test("the brush goes before the committed window", () => {
  expect(effectiveWindow({})).toBeUndefined();
  expect(effectiveWindow({ zoom: [{ from: 0, to: 5 }] })).toEqual({ from: 0, to: 5 });
  expect(effectiveWindow({ zoom: [{ from: 0, to: 5 }], window: { from: 1, to: 2 } })).toEqual({ from: 1, to: 2 });
});

test("an order is a list of columns, or nothing", () => {
  for (const sort of ["flat", "-cum", "flat,-name"]) expect(readSearch(writeSearch({ sort })).sort).toBe(sort);
  for (const text of ["flat,", "a,b,c,d,e", "flat;name", ","]) expect(readSearch(`sort=${text}`).sort).toBeUndefined();
});

test("rows of every graph are read: ids of inverted and compared trees are long", () => {
  for (const root of [0, 7, 5 * 2 ** 32 + 3, Number.MAX_SAFE_INTEGER]) {
    expect(readSearch(writeSearch({ root })).root).toBe(root);
  }
  for (const text of ["9007199254740993", "-1", "1e3", "x"]) expect(readSearch(`root=${text}`).root).toBeUndefined();
});
