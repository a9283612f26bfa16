import { expect, test } from "vitest";
import type { Memory } from "../../src/api/types.ts";
import { mappedBy, memoryParts } from "../../src/features/overview/memory-parts.ts";

const MEMORY: Memory = {
  schema: "heaptrace.memory/2",
  at_ns: 5,
  allocator: "glibc",
  look_ns: null,
  rss_bytes: 1000,
  explained_bytes: 1000,
  live_bytes: 300,
  returnable_by_trim_bytes: null,
  why: "",
  rows: [],
  beside: [],
  sample: { t_ns: 4, rss_bytes: 1000, rss_anonymous_bytes: 700, recorder_bytes: 150, virtual_bytes: 5000 },
  resident: {
    live_bytes: 300,
    page_rest_bytes: 100,
    untouched_bytes: 0,
    other_anonymous_bytes: 250,
    files_bytes: 200,
    recorder_bytes: 150,
  },
  live: { bytes: 300, count: 3 },
  pages: { page_bytes: 100, count: 4, bytes: 400, used_bytes: 300, by_tenths: [] },
  mapped_bytes: 0,
  mapped_peak_bytes: 0,
  kinds: [],
  mappers: [],
  exactness: { events: 1, lost_events: 0, damaged_blocks: 0, watermark_ns: 5, complete: true },
};

const sumOf = (memory: Memory, of: "bytes" | "drawn") =>
  (memoryParts(memory) ?? []).reduce((sum, part) => sum + part[of], 0);

test("the parts of resident memory add up to it, drawn and written", () => {
  expect(memoryParts(MEMORY)?.map((part) => part.id)).toEqual(["live", "rest", "other", "files", "recorder"]);
  expect([sumOf(MEMORY, "bytes"), sumOf(MEMORY, "drawn")]).toEqual([1000, 1000]);
});

test("what was not touched is a row of its own, and narrows the bar", () => {
  const resident = { live_bytes: 9000, page_rest_bytes: 400, untouched_bytes: 9150, other_anonymous_bytes: 400 };
  const memory = { ...MEMORY, resident: { ...resident, files_bytes: 200, recorder_bytes: 150 } };
  expect([sumOf(memory, "bytes"), sumOf(memory, "drawn")]).toEqual([1000, 1000]);
  expect(memoryParts(memory)?.map((part) => part.drawn)).toEqual([0, 250, 0, 400, 200, 150]);
});

test("without a sample there is nothing to say", () => {
  expect(memoryParts({ ...MEMORY, sample: null, resident: null })).toBeUndefined();
});

test("mappings are added up by the function that is the program's own", () => {
  const frame = (name: string, module: string) => ({
    function: name,
    file: null,
    line: null,
    module,
    inlined: false,
    library: module.startsWith("libc.so"),
    address: "0x1",
  });
  const mapper = (mapped: number, used: number, stack: ReturnType<typeof frame>[]) => ({
    mapped_bytes: mapped,
    mappings: 1,
    used_bytes: used,
    page_bytes: used,
    stack,
  });
  const mappers = [
    mapper(500, 0, [frame("arena", "app"), frame("main", "app")]),
    mapper(700, 10, []),
    mapper(400, 1, [frame("mmap_chunk", "libc.so.6"), frame("arena", "app")]),
  ];
  expect(mappedBy({ ...MEMORY, mappers })).toEqual([
    { name: "arena", module: "app", mappedBytes: 900, usedBytes: 1 },
    { name: undefined, module: undefined, mappedBytes: 700, usedBytes: 10 },
  ]);
});
