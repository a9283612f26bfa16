// A report's answers: found by what they mean, cut, sorted and searched as the server would have done it.
import { afterEach, expect, test } from "vitest";
import { getJson, ProblemError } from "../../src/api/client.ts";
import { type Report, reportHas, subtree, useReport } from "../../src/api/report.ts";
import type { Flamegraph, Functions, Recordings } from "../../src/api/types.ts";

const exactness = { events: 1, lost_events: 0, damaged_blocks: 0, watermark_ns: 1, complete: true };

// all(100) → main(100) → a(60) → b(40), rest of main: 10 folded.
const graph: Flamegraph = {
  schema: "heaptrace.flamegraph/1",
  freeing: false,
  pinned: false,
  metric: "live",
  unit: "bytes",
  from_ns: 0,
  to_ns: 10,
  at_ns: 10,
  inverted: false,
  total: 100,
  ancestors: [],
  rows: {
    id: [0, 5, 7, 9, 5],
    parent: [0, 0, 1, 2, 1],
    frame: [null, 0, 1, 2, null],
    value: [100, 100, 60, 40, 10],
    own: [0, 30, 20, 40, 10],
    folded: [0, 0, 0, 0, 3],
  },
  frames: ["main", "a", "b"].map((name) => ({
    name,
    module: "app",
    file: null,
    line: null,
    inlined: false,
    library: false,
  })),
  exactness,
};

const row = (name: string, flat: number, cum: number) => ({
  id: name,
  name,
  flat,
  cum,
  library: false,
  flat_other: 1,
  cum_other: 1,
  module: "app",
  file: null,
  line: null,
});

const functions = {
  schema: "heaptrace.functions/1",
  metric: "live",
  unit: "bytes",
  total: 100,
  total_rows: 900,
  rows: [row("b", 40, 40), row("main", 30, 100), row("Alpha", 20, 60)],
  exactness,
} as unknown as Functions;

const report: Report = {
  schema: "heaptrace.report/1",
  made_at: "2026-01-01T00:00:00Z",
  name: "memory-a.dat",
  title: "a (1)",
  from_ns: 0,
  to_ns: 10,
  filters: {},
  left_out: [],
  stripped: false,
  answers: [
    { document: "flamegraph", parameters: { metric: "live", unit: "bytes", inverted: false }, body: graph },
    { document: "functions", parameters: { metric: "live", unit: "bytes", by: "function" }, body: functions },
  ],
};

afterEach(() => useReport(undefined));

test("a subtree has its ancestors, and its rows are its own", () => {
  const cut = subtree(graph, 7);
  expect(cut.rows).toEqual({
    id: [7, 9],
    parent: [0, 0],
    frame: [1, 2],
    value: [60, 40],
    own: [20, 40],
    folded: [0, 0],
  });
  expect(cut.ancestors).toEqual([
    { id: 0, frame: null, value: 100 },
    { id: 5, frame: 0, value: 100 },
  ]);
  expect(subtree(graph, 5).rows.id).toEqual([5, 7, 9, 5]);
  expect(subtree(graph, 0)).toBe(graph);
  expect(() => subtree(graph, 6)).toThrow(ProblemError);
});

test("drawing does not matter to what is found, meaning does", async () => {
  useReport(report);
  const asked = await getJson<Flamegraph>("recordings/r1/flamegraph", { width: 1200, max_nodes: 10, root: 7 });
  expect(asked.rows.id).toEqual([7, 9]);
  await expect(getJson("recordings/r1/flamegraph", { metric: "peak" })).rejects.toThrow("report does not contain it");
  await expect(getJson("recordings/r1/flamegraph", { from: 1, to: 2 })).rejects.toThrow("one window and one filter");
  await expect(getJson("recordings/r1/allocations", {})).rejects.toThrow("heaptrace server");
  const list = await getJson<Recordings>("recordings", {});
  expect(list.recordings.map(({ id, state }) => [id, state])).toEqual([["r1", "ready"]]);
});

test("pins are there in the units that the report was made with", async () => {
  const pins = (unit: string) => ({ document: "pins", parameters: { by: "site", unit }, body: { unit } });
  useReport({ ...report, answers: [...report.answers, pins("4k"), pins("slab")] });
  expect(await getJson("recordings/r1/pins", { by: "site" })).toEqual({ unit: "4k" });
  expect(await getJson("recordings/r1/pins", { by: "site", unit: "slab" })).toEqual({ unit: "slab" });
  await expect(getJson("recordings/r1/pins", { by: "site", unit: "2M" })).rejects.toThrow("does not contain it");
  const has = ["4k", "2M", "slab"].map((unit) => reportHas("pins", { by: "site", unit }));
  expect(has).toEqual([true, false, true]);
});

test("rows are searched, sorted and paged as the server does it", async () => {
  useReport(report);
  const names = async (parameters: Record<string, string | number | boolean>) =>
    (await getJson<Functions>("recordings/r1/functions", parameters)).rows.map(({ name }) => name);
  expect(await names({})).toEqual(["b", "main", "Alpha"]);
  expect(await names({ sort: "cum" })).toEqual(["main", "Alpha", "b"]);
  expect(await names({ sort: "-cum" })).toEqual(["b", "Alpha", "main"]);
  expect(await names({ sort: "name" })).toEqual(["Alpha", "b", "main"]);
  expect(await names({ search: "(?i)ALPHA" })).toEqual(["Alpha"]);
  expect(await names({ search: "ALPHA" })).toEqual([]);
  expect(await names({ limit: 1, offset: 1 })).toEqual(["main"]);
  expect((await getJson<Functions>("recordings/r1/functions", {})).total_rows).toBe(900);
});
