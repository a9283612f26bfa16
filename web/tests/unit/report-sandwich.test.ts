// A graph cut at a function as the server cuts it, out of the whole graph that a report holds.
import { expect, test } from "vitest";
import { cutAt } from "../../src/api/report-sandwich.ts";
import type { Flamegraph } from "../../src/api/types.ts";

// all(100) → main(100) → f(50) → f(20) → g(10)
//                               → g(20)
//                      → h(30) → f(25) → g(5)
//                              → 2 folded (5)
const graph = {
  schema: "heaptrace.flamegraph/1",
  total: 100,
  ancestors: [],
  inverted: false,
  rows: {
    id: [0, 1, 2, 3, 4, 5, 6, 7, 8, 6],
    parent: [0, 0, 1, 2, 3, 2, 1, 6, 7, 6],
    frame: [null, 0, 1, 1, 2, 2, 3, 1, 2, null],
    value: [100, 100, 50, 20, 10, 20, 30, 25, 5, 5],
    own: [0, 20, 10, 10, 10, 20, 0, 20, 5, 5],
    folded: [0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
  },
  frames: ["main", "f", "g", "h"].map((name) => ({
    name,
    module: "app",
    file: null,
    line: null,
    inlined: false,
    library: false,
  })),
} as unknown as Flamegraph;

/** `name value own` for each row, with its depth in front. */
function lines({ rows, frames }: Flamegraph): string[] {
  const depth: number[] = [];
  return rows.id
    .map((_, row) => {
      depth[row] = row === 0 ? 0 : (depth[rows.parent[row] ?? 0] ?? 0) + 1;
      const frame = rows.frame[row];
      const name =
        (rows.folded[row] ?? 0) > 0 ? "rest" : frame === null || frame === undefined ? "all" : frames[frame]?.name;
      return `${depth[row]} ${name} ${rows.value[row]} ${rows.own[row]}`;
    })
    .sort();
}

test("callees: the outermost calls laid over one another", () => {
  const cut = cutAt(graph, ({ name }) => name === "f", "show_from", undefined);
  expect(cut.total).toBe(75);
  expect(lines(cut)).toEqual(["0 all 75 0", "1 f 75 30", "2 f 20 10", "2 g 25 25", "3 g 10 10"]);
});

test("callers: only stacks with the function, callers hold what it holds", () => {
  const cut = cutAt(graph, ({ name }) => name === "f", "focus", undefined);
  expect(cut.total).toBe(75);
  expect(lines(cut)).toEqual([
    "0 all 75 0",
    "1 main 75 0",
    "2 f 50 10",
    "2 h 25 0",
    "3 f 20 10",
    "3 f 25 20",
    "3 g 20 20",
    "4 g 10 10",
    "4 g 5 5",
  ]);
});

test("what the graph does not show of a known sum is a folded row, and sums stay whole", () => {
  for (const cut of ["focus", "show_from"] as const) {
    const { total, rows } = cutAt(graph, ({ name }) => name === "f", cut, 80);
    expect(total).toBe(80);
    expect(rows.own.reduce((all, own) => all + own, 0)).toBe(80);
    expect(rows.folded.some((folded) => folded > 0)).toBe(true);
    expect(rows.value[0]).toBe(80);
  }
});

test("a function that is not there holds nothing", () => {
  expect(cutAt(graph, ({ name }) => name === "nobody", "focus", undefined).rows.value).toEqual([0]);
});
