import { expect, test } from "vitest";
import type { SqlAnswer } from "../../src/api/types.ts";
import { charactersOf, columnId, exactText, kindOf, rowsOf, shortText } from "../../src/features/sql/cells.ts";
import { SORT_TEXT } from "../../src/lib/sorting.ts";

test("a column is what its name says, if its values are numbers", () => {
  for (const [name, kind] of [
    ["size", "bytes"],
    ["flat_bytes", "bytes"],
    ["live_bytes_max", "bytes"],
    ["sum(a.size)", "bytes"],
    ["bytes_per_second_low", "byte rate"],
    ["t_ns", "time"],
    ["max(lifetime_ns)", "time"],
    ["LIFETIME_NS:2", "time"],
    ["address", "address"],
    ["count(*)", "count"],
    ["blocks", "count"],
    ["alloc_rate", "rate"],
    ["pid", "number"],
    ["row", "number"],
    ["bytes_of_what", "number"],
  ] as const)
    expect(kindOf(name, [null, 1]), name).toBe(kind);
  expect(kindOf("size", [1, "x"])).toBe("text");
  expect(kindOf("size", [null])).toBe("text");
});

test("values are shown short, and every digit can be had", () => {
  expect(shortText("bytes", 1536)).toBe("1.50 KiB");
  expect(exactText("bytes", 1536)).toBe("1,536 bytes");
  expect(shortText("bytes", -1536)).toBe("-1.50 KiB");
  expect(shortText("time", 1_500_000)).toBe("1.50 ms");
  expect(exactText("time", 1_500_000)).toBe("1,500,000 ns");
  expect(shortText("address", 0x7f0012340000)).toBe("0x7f0012340000");
  expect(exactText("address", 0x7f0012340000)).toBe(String(0x7f0012340000));
  expect(shortText("count", 1234567)).toBe("1,234,567");
  expect(shortText("byte rate", 2048)).toBe("2.00 KiB/s");
  expect(shortText("number", 47113)).toBe("47113");
  expect(shortText("number", 1 / 3)).toBe("0.333333");
  expect(exactText("number", 1 / 3)).toBe(String(1 / 3));
  expect(shortText("text", "<b>")).toBe("<b>");
});

test("a number that a browser does not keep exactly is not shown as if it did", () => {
  const sum = Number("9007199254740993");
  expect(shortText("number", sum)).toContain("≈");
  expect(exactText("number", sum)).toContain("CAST");
});

test("rows have a cell for every column, whatever it is called", () => {
  const answer: SqlAnswer = {
    schema: "heaptrace.sql/1",
    columns: ["a", "__proto__", "a:2"],
    rows: JSON.parse('[{"a": 1, "__proto__": "x", "a:2": null}]') as SqlAnswer["rows"],
    row_count: 1,
    truncated: false,
  };
  expect(rowsOf(answer)).toEqual([{ index: 0, cells: [1, "x", null] }]);
});

test("columns are as wide as their texts, within bounds, and can be named in the address", () => {
  expect(charactersOf("n", ["1"])).toBe(6);
  expect(charactersOf("function", ["main"])).toBe(11);
  expect(charactersOf("function", ["x".repeat(500)])).toBe(44);
  const ids = Array.from({ length: 2000 }, (_, at) => columnId(at));
  expect(new Set(ids).size).toBe(2000);
  expect(ids.slice(0, 2)).toEqual(["c_a", "c_b"]);
  expect(ids[26]).toBe("c_ba");
  for (const id of ids) expect(id).toMatch(SORT_TEXT);
});
