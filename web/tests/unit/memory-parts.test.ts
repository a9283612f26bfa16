import { expect, test } from "vitest";
import type { Memory } from "../../src/api/types.ts";
import { memoryParts } from "../../src/features/overview/memory-parts.ts";

const MEMORY: Memory = {
  schema: "heaptrace.memory/1",
  at_ns: 5,
  sample: {
    t_ns: 4,
    rss_bytes: 1000,
    rss_anonymous_bytes: 700,
    recorder_bytes: 150,
    virtual_bytes: 5000,
  },
  live: { bytes: 310, count: 3 },
  pages: { page_bytes: 100, count: 4, bytes: 400, used_bytes: 300, by_tenths: [] },
  mapped_bytes: 0,
  mapped_peak_bytes: 0,
  mappers: [],
  exactness: { events: 1, lost_events: 0, damaged_blocks: 0, watermark_ns: 5, complete: true },
};

const bytesOf = (memory: Memory, chunks: number) =>
  Object.fromEntries((memoryParts(memory, chunks) ?? []).map((part) => [part.id, part.bytes]));

test("the parts of resident memory add up to it", () => {
  const parts = bytesOf(MEMORY, 100);
  // 100 of the recorder's are a mapped file, 50 anonymous.
  expect(parts).toEqual({ live: 300, holes: 100, kept: 250, files: 200, recorder: 150 });
  expect(Object.values(parts).reduce((sum, bytes) => sum + bytes, 0)).toBe(1000);
});

test("blocks that were never written to are not resident", () => {
  const untouched = { ...MEMORY, pages: { ...MEMORY.pages, bytes: 90_000, used_bytes: 80_000 } };
  const parts = bytesOf(untouched, 100);
  expect(parts).toEqual({ live: 650, holes: 0, kept: 0, files: 200, recorder: 150 });
});

test("without a sample there is nothing to say", () => {
  expect(memoryParts({ ...MEMORY, sample: null }, 0)).toBeUndefined();
});
