// Moments that questions are about.
import { expect, test } from "vitest";
import { metricOfTwo } from "../../src/lib/moment.ts";

test("two recordings are compared at their peaks, while nothing else is asked for", () => {
  expect(metricOfTwo({}, false)).toBe("peak");
  expect(metricOfTwo({}, true)).toBe("live");
  expect(metricOfTwo({ at: 5 }, false)).toBe("live");
  expect(metricOfTwo({ metric: "leaked", at: 5 }, true)).toBe("leaked");
  // Two recordings have nothing in common that was freed.
  expect(metricOfTwo({ metric: "freed" }, false)).toBe("peak");
});
