// Which rows of a long table are there.
import { expect, test } from "vitest";
import { rowsAt } from "../../src/ui/fixed-rows.ts";

test("the rows that are seen are there, and some beside them", () => {
  expect(rowsAt(1000, 26, 0, 260)).toEqual({ first: 0, end: 22, offset: 0 });
  expect(rowsAt(1000, 26, 2600, 260)).toEqual({ first: 88, end: 122, offset: 2600 });
});

test("there are none where none can be seen, and never more than there are", () => {
  expect(rowsAt(1000, 26, 0, 0)).toEqual({ first: 0, end: 0, offset: 0 });
  expect(rowsAt(3, 26, 0, 260)).toEqual({ first: 0, end: 3, offset: 0 });
  // Scrolled far down when the rows become few.
  expect(rowsAt(3, 26, 26_000, 260)).toEqual({ first: 3, end: 3, offset: 26_000 });
});

test("many rows cost what few do", () => {
  const began = performance.now();
  const { first, end } = rowsAt(50_000_000, 26, 25_000_000 * 26, 600);
  expect(performance.now() - began).toBeLessThan(5);
  expect(end - first).toBeLessThan(60);
});
