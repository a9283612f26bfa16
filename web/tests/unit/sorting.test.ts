import { expect, test } from "vitest";
import { choose, readKeys, sortedRows, writeKeys } from "../../src/lib/sorting.ts";

const otherwise = { column: "flat", reversed: false };
const read = (text: string | undefined) => readKeys(text, ["flat", "cum", "name"], otherwise);
const after = (text: string, column: string, add: boolean) => writeKeys(choose(read(text), column, add));

test("what an order says; unknown and repeated columns are left out", () => {
  expect(read(undefined)).toEqual([otherwise]);
  expect(read("born")).toEqual([otherwise]);
  expect(read("-cum,born,name,cum")).toEqual([
    { column: "cum", reversed: true },
    { column: "name", reversed: false },
  ]);
});

test("a click has its column decide alone, a second one turns it round", () => {
  expect(after("flat", "cum", false)).toBe("cum");
  expect(after("flat", "flat", false)).toBe("-flat");
  expect(after("-flat", "flat", false)).toBe("flat");
  expect(after("flat,name", "flat", false)).toBe("flat");
});

test("Shift adds a column, turns it round, takes it away", () => {
  expect(after("flat", "name", true)).toBe("flat,name");
  expect(after("flat,name", "name", true)).toBe("flat,-name");
  expect(after("flat,-name", "name", true)).toBe("flat");
  expect(after("-flat", "flat", true)).toBe("flat");
});

test("rows are compared by the next column where the first finds them equal", () => {
  const rows = [
    { size: 10, name: "f10" },
    { size: 300, name: "f2" },
    { size: 10, name: "f9" },
  ];
  const columns = [
    { id: "size", numeric: true, value: (row: { size: number }) => row.size },
    { id: "name", value: (row: { name: string }) => row.name },
  ];
  const names = (sort: string) =>
    sortedRows(rows, columns, readKeys(sort, undefined, otherwise)).map(({ name }) => name);
  expect(names("size,name")).toEqual(["f2", "f9", "f10"]);
  expect(names("-size,-name")).toEqual(["f10", "f9", "f2"]);
  expect(rows[0]?.name).toBe("f10");
});

test("an order may follow something else than what is copied", () => {
  const rows = [{ change: 5 }, { change: -300 }, { change: 20 }];
  const columns = [
    {
      id: "change",
      numeric: true,
      value: (row: { change: number }) => row.change,
      order: (row: { change: number }) => Math.abs(row.change),
    },
  ];
  const sorted = sortedRows(rows, columns, [{ column: "change", reversed: false }]);
  expect(sorted.map((row) => row.change)).toEqual([-300, 20, 5]);
});
