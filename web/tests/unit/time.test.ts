import { expect, test } from "vitest";
import {
  clampWindow,
  panWindow,
  readTime,
  readWindow,
  writeTime,
  writeWindow,
  zoomWindow,
} from "../../src/lib/time.ts";

test.each([0, 1, 999, 1_000_000_000, 1_500_000_000, 123_456_789_012_345, 9_007_199_254_740_991])(
  "%d ns survive the URL exactly",
  (ns) => expect(readTime(writeTime(ns))).toBe(ns),
);

test.each([
  ["1.5s", 1_500_000_000],
  ["200ms", 200_000_000],
  ["3us", 3000],
  ["17ns", 17],
  ["42", 42],
])("%s is read", (text, ns) => expect(readTime(text)).toBe(ns));

test("malformed times are refused", () => {
  for (const text of ["", "-1s", "1e9", "s", "1 hour", "NaN", "1.2.3s", "999999999999s"]) {
    expect(readTime(text), text).toBeUndefined();
  }
});

test("windows", () => {
  expect(readWindow("1s-2.5s")).toEqual({ from: 1e9, to: 2.5e9 });
  expect(writeWindow({ from: 1e9, to: 2.5e9 })).toBe("1s-2.5s");
  for (const text of ["", "1s", "2s-1s", "1s-1s", "1s-2s-3s", "a-b"]) expect(readWindow(text), text).toBeUndefined();
});

test("windows stay inside of the recording", () => {
  expect(clampWindow({ from: -5, to: 20 }, 10)).toEqual({ from: 0, to: 10 });
  expect(clampWindow({ from: 8, to: 12 }, 10)).toEqual({ from: 6, to: 10 });
  expect(clampWindow({ from: 4, to: 4 }, 10, 2)).toEqual({ from: 4, to: 6 });
  expect(panWindow({ from: 2, to: 5 }, 100, 10)).toEqual({ from: 7, to: 10 });
  expect(panWindow({ from: 2, to: 5 }, -100, 10)).toEqual({ from: 0, to: 3 });
});

test("zooming keeps what is under the pointer", () => {
  const zoomed = zoomWindow({ from: 0, to: 1_000_000 }, 250_000, 0.5, 1_000_000);
  expect(zoomed).toEqual({ from: 125_000, to: 625_000 });
  expect(zoomWindow(zoomed, 250_000, 2, 1_000_000)).toEqual({ from: 0, to: 1_000_000 });
});
