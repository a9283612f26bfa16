import { expect, test } from "vitest";
import { apiUrl } from "../../src/api/client.ts";
import { withoutPattern, withPattern } from "../../src/lib/pattern.ts";
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

test("of several patterns to focus on each keeps its own rule, and they come and go one by one", () => {
  const both = withPattern(withPattern(undefined, "parse"), "Cache");
  expect(filterParameters({ focus: both })).toEqual({ focus: "(?i)parse\nCache" });
  expect(withPattern(both, "parse")).toBe("Cache\nparse");
  expect(withoutPattern(both, 0)).toBe("Cache");
  expect(withoutPattern("Cache", 0)).toBeUndefined();
  // One that cannot be understood is left out: its chip says so, and the others have theirs.
  expect(filterParameters({ focus: withPattern(both, "(") })).toEqual({ focus: "(?i)parse\nCache" });
  expect(filterParameters({ ignore: "(" })).toEqual({});
});

test("of several patterns to ignore, to hide or to show any may match", () => {
  const both = withPattern("parse", "Cache");
  expect(filterParameters({ ignore: both, hide: "one", show: "a|B" })).toEqual({
    ignore: "(?:(?i)parse)|(?:Cache)",
    hide: "(?i)one",
    show: "a|B",
  });
  expect(filterParameters({ ignore: withPattern("(", "parse") })).toEqual({ ignore: "(?i)parse" });
});

test("addresses hold each parameter once, in order, escaped", () => {
  expect(apiUrl("recordings/r1/leaks", { to: 2, from: 1, focus: "a&b", empty: "", none: undefined })).toBe(
    "/api/v1/recordings/r1/leaks?focus=a%26b&from=1&to=2",
  );
});
