import { expect, test } from "vitest";
import { apiUrl } from "../../src/api/client.ts";
import { filterParameters, metricParameters, windowParameters } from "../../src/lib/request.ts";

test("an instant excludes the window", () => {
  const search = { at: 5, window: { from: 1, to: 9 } };
  expect(metricParameters(search)).toEqual({ metric: "live", unit: "bytes", at: 5 });
  expect(metricParameters({ ...search, metric: "allocated" })).toEqual({
    metric: "allocated",
    unit: "bytes",
    from: 1,
    to: 9,
  });
});

test("a paused recording is asked up to where it was paused", () => {
  expect(windowParameters({})).toEqual({});
  expect(windowParameters({}, 77)).toEqual({ from: 0, to: 77 });
  expect(windowParameters({ window: { from: 1, to: 9 } }, 77)).toEqual({ from: 1, to: 9 });
});

test("small letters match both, capitals themselves; sizes are left alone", () => {
  expect(filterParameters({ focus: "parse", ignore: "Parse", min_size: "64k", thread: "main" })).toEqual({
    focus: "(?i)parse",
    ignore: "Parse",
    min_size: "64k",
    thread: "main",
  });
});

test("addresses hold each parameter once, in order, escaped", () => {
  expect(apiUrl("recordings/r1/leaks", { to: 2, from: 1, focus: "a&b", empty: "", none: undefined })).toBe(
    "/api/v1/recordings/r1/leaks?focus=a%26b&from=1&to=2",
  );
});
