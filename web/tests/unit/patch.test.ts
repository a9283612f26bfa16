// Choices of cells by arrow keys.
import { expect, test } from "vitest";
import { isInside, moved, ordered, readPatch, writePatch } from "../../src/lib/patch.ts";

const size = { rows: 3, columns: 4 };
const one = { row: 1, rowTo: 1, column: 2, columnTo: 2 };

test("arrow keys move a choice, Shift extends it, edges hold it", () => {
  const press = (key: string, shiftKey = false, from = one) => moved(from, { key, shiftKey }, size);
  expect(press("ArrowUp")).toEqual({ row: 2, rowTo: 2, column: 2, columnTo: 2 });
  expect(press("ArrowLeft", true)).toEqual({ row: 1, rowTo: 1, column: 2, columnTo: 1 });
  expect(press("ArrowRight", false, { ...one, column: 3, columnTo: 3 })).toEqual({ ...one, column: 3, columnTo: 3 });
  expect(press("ArrowDown", true, { ...one, rowTo: 0 })).toEqual({ ...one, rowTo: 0 });
  expect(press("Enter")).toBeUndefined();
});

test("a choice is read as it was written, and is none of a smaller picture", () => {
  const patch = { row: 2, rowTo: 0, column: 1, columnTo: 3 };
  expect(readPatch(writePatch(patch))).toEqual(patch);
  for (const text of ["", "1.2.3", "1.2.3.-4", "1.2.3.4.5", "1.2.3.12345"]) expect(readPatch(text)).toBeUndefined();
  expect(isInside(patch, 3, 4)).toBe(true);
  expect(isInside(patch, 2, 4)).toBe(false);
  expect(isInside(patch, 3, 3)).toBe(false);
});

test("a choice has its lower numbers first, whichever corner came first", () => {
  expect(ordered({ row: 2, rowTo: 0, column: 1, columnTo: 3 })).toEqual({ row: 0, rowTo: 2, column: 1, columnTo: 3 });
});
