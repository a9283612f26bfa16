// Scales of two timelines that are compared.
import { expect, test } from "vitest";
import { rangesOf } from "../../src/features/timeline/both.ts";

test("two runs have one axis of time, unless one is many times as long as the other", () => {
  expect(rangesOf(1e9, 3e9)).toEqual({ ends: [3e9, 3e9], isCommon: true });
  expect(rangesOf(5e9, 1e9)).toEqual({ ends: [5e9, 1e9], isCommon: false });
  // What is not known yet does not change what is drawn.
  expect(rangesOf(2e9, undefined)).toEqual({ ends: [2e9, 2e9], isCommon: true });
  expect(rangesOf(0, undefined).ends).toEqual([1, 1]);
});
