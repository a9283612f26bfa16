// Choices of cells by arrow keys.
import { expect, test } from "vitest";
import { moved, ordered } from "../../src/lib/patch.ts";

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

test("a choice has its lower numbers first, whichever corner came first", () => {
  expect(ordered({ row: 2, rowTo: 0, column: 1, columnTo: 3 })).toEqual({ row: 0, rowTo: 2, column: 1, columnTo: 3 });
});
