import { expect, test } from "vitest";
import { freeingThread } from "../../src/features/sites/freeing-thread.ts";

test.each([
  [1, 1, "by the thread that had allocated it"],
  [1, 0, "by a thread that had not allocated it"],
  [12, 12, "by the thread that had allocated them"],
  [12, 3, "25.0% of them by the thread that had allocated them"],
  [12, 0, "by a thread that had not allocated them"],
])("of %i blocks %i: %s", (blocks, same, text) => {
  expect(freeingThread(blocks, same)).toBe(text);
});
