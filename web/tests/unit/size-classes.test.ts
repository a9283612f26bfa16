import { expect, test } from "vitest";
import { chosenClass, isOnly, sizeClasses } from "../../src/lib/size-classes.ts";

const classes = sizeClasses({
  lower: [0, 1, 2, 3, 4, 5, 16, 20, 24, 64, 1024, 1280],
  count: [2, 1, 0, 0, 0, 3, 4, 0, 1, 0, 7, 1],
  bytes: [0, 1, 0, 0, 0, 15, 64, 0, 24, 0, 7168, 1280],
});

test("classes of a histogram are added up to powers of two; those without a block are left out", () => {
  expect(classes).toEqual([
    { from: 0, to: 0, count: 2, bytes: 0 },
    { from: 1, to: 1, count: 1, bytes: 1 },
    { from: 4, to: 7, count: 3, bytes: 15 },
    { from: 16, to: 31, count: 5, bytes: 88 },
    { from: 1024, to: 2047, count: 8, bytes: 8448 },
  ]);
});

test("a class is a filter by size, and off again", () => {
  const of = classes[3];
  if (!of) throw new Error("there are five");
  const filters = chosenClass(of, { focus: "x", max_size: "5" });
  expect(filters).toEqual({ focus: "x", min_size: "16", max_size: "31" });
  expect(isOnly(of, filters)).toBe(true);
  expect(chosenClass(of, filters)).toEqual({ focus: "x" });
  expect(chosenClass(of, { min_size: "16", max_size: "31" })).toBeUndefined();
});
