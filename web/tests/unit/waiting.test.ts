import { expect, test } from "vitest";
import { shortWait, waitOf } from "../../src/lib/waiting.ts";

test("a wait is a part of the runtime, and a number of threads where it is more than all of it", () => {
  expect(shortWait(0.031)).toBe("waited 3.10%");
  expect(waitOf(1)).toBe("100% of the runtime");
  expect(shortWait(3.14)).toBe("3.14 threads waiting");
  expect(waitOf(42.4)).toBe("42 threads at a time on average");
});
