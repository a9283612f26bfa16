// Tables with more rows than a browser has pixels.
import { expect, test } from "vitest";
import { HIGHEST, longScroll, offsetFor } from "../../src/ui/long-scroll.ts";

const ROW = 26;
const ROOM = 600;

test("a table that a browser can draw is scrolled as it is", () => {
  expect(longScroll(500_000 * ROW, ROOM)).toEqual({ speed: 1, height: 500_000 * ROW });
});

test.each([800_000, 2_080_743, 20_000_000])("the last of %i rows is reached, and so is the first", (count) => {
  const { speed, height } = longScroll(count * ROW, ROOM);
  // Firefox ends an element at 17,895,697 pixels.
  expect(height).toBe(HIGHEST);
  expect(HIGHEST).toBeLessThan(17_895_697);
  const end = offsetFor((count - 1) * ROW, ROW, 0, ROOM) / speed;
  expect(end).toBeCloseTo(height + 28 - ROOM, 3);
  expect(offsetFor(0, ROW, end * speed, ROOM)).toBe(0);
});

test("a row in sight moves nothing, one just below moves by one row", () => {
  expect(offsetFor(5 * ROW, ROW, 0, ROOM)).toBe(0);
  const seen = Math.floor((ROOM - 28) / ROW);
  expect(offsetFor(seen * ROW, ROW, 0, ROOM)).toBe((seen + 1) * ROW - (ROOM - 28));
});
