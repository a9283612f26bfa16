import { describe, expect, test } from "vitest";
import type { Flamegraph } from "../../src/api/types.ts";
import {
  buildTree,
  callersOf,
  collapseRecursion,
  everyNode,
  type FlameNode,
  findMatches,
  neighbour,
  nodeName,
  stackOf,
} from "../../src/lib/flame-tree.ts";
import { typicalRecording } from "../mock-api/recording.ts";
import { flamegraph } from "../mock-api/trees.ts";

const FRAMES = ["main", "work", "rest", "recurse"].map((name) => ({
  name,
  module: "app",
  file: null,
  line: null,
  inlined: false,
  library: false,
}));

function document(
  rows: [id: number, parent: number, frame: number | null, value: number, own: number, folded?: number][],
): Flamegraph {
  return {
    schema: "heaptrace.flamegraph/1",
    freeing: false,
    pinned: false,
    metric: "live",
    unit: "bytes",
    from_ns: 0,
    to_ns: 10,
    at_ns: null,
    inverted: false,
    total: rows[0]?.[3] ?? 0,
    ancestors: [],
    rows: {
      id: rows.map((row) => row[0]),
      parent: rows.map((row) => row[1]),
      frame: rows.map((row) => row[2]),
      value: rows.map((row) => row[3]),
      own: rows.map((row) => row[4]),
      folded: rows.map((row) => row[5] ?? 0),
    },
    frames: FRAMES,
    exactness: { events: 1, lost_events: 0, damaged_blocks: 0, watermark_ns: 10, complete: true },
  };
}

const SMALL = document([
  [0, 0, null, 100, 0],
  [1, 0, 0, 100, 10],
  [2, 1, 2, 30, 30],
  [3, 1, 1, 50, 50],
  [1, 1, null, 10, 10, 4],
]);

function treeOf(from: Flamegraph): FlameNode {
  const tree = buildTree(from);
  if (!tree) throw new Error("the document has no row");
  return tree;
}

function nodeNamed(tree: FlameNode, name: string): FlameNode {
  for (const node of everyNode(tree)) if (nodeName(node) === name) return node;
  throw new Error(`no node ${name}`);
}

describe("a small tree", () => {
  const tree = treeOf(SMALL);

  test("widest first, the folded rest last and visible", () => {
    expect(nodeNamed(tree, "main").children.map(nodeName)).toEqual(["work", "rest", "4 smaller functions"]);
    expect(nodeName(tree)).toBe("all");
  });

  test("arrows", () => {
    const work = nodeNamed(tree, "work");
    expect(neighbour(work, "next")).toBe(nodeNamed(tree, "rest"));
    expect(neighbour(work, "previous")).toBeUndefined();
    expect(neighbour(work, "caller")).toBe(nodeNamed(tree, "main"));
    expect(neighbour(nodeNamed(tree, "main"), "callee")).toBe(work);
    expect(neighbour(tree, "next")).toBeUndefined();
  });

  test("stacks are leaf first", () => {
    expect(stackOf(nodeNamed(tree, "work"), SMALL).map((frame) => frame.function)).toEqual(["work", "main"]);
    expect(
      stackOf(nodeNamed(tree, "work"), { ...SMALL, ancestors: [{ id: 9, frame: 2, value: 1 }] }).map((f) => f.function),
    ).toEqual(["work", "main", "rest"]);
  });
});

test("no row is no tree", () => {
  expect(buildTree(document([]))).toBeUndefined();
});

test("matches are summed where they are topmost, so never above the whole", () => {
  const tree = treeOf(SMALL);
  expect(findMatches(tree, (text) => text === "main" || text === "work")).toEqual({
    rows: new Set([1, 3]),
    value: 100,
  });
  expect(findMatches(tree, (text) => text === "work").value).toBe(50);
  expect(findMatches(tree, () => false)).toEqual({ rows: new Set(), value: 0 });
});

test("growth and shrinking do not cancel out in width", () => {
  const tree = treeOf(
    document([
      [0, 0, null, 0, 0],
      [1, 0, 0, 40, 40],
      [2, 0, 1, -40, -40],
    ]),
  );
  expect(tree.value).toBe(0);
  expect(tree.weight).toBe(80);
});

test("recursion collapses into one frame, with all of its weight", () => {
  const tree = treeOf(
    document([
      [0, 0, null, 60, 0],
      [1, 0, 3, 60, 5],
      [2, 1, 3, 55, 5],
      [3, 2, 3, 50, 20],
      [4, 3, 1, 30, 30],
    ]),
  );
  const collapsed = collapseRecursion(tree);
  const [recurse] = collapsed.children;
  expect(recurse && nodeName(recurse)).toBe("recurse");
  expect(recurse?.own).toBe(30);
  expect(recurse?.weight).toBe(60);
  expect(recurse?.children.map(nodeName)).toEqual(["work"]);
});

test("two thousand frames of recursion are one tree, and collapse", () => {
  const rows = Array.from({ length: 2001 }, (_, i): [number, number, number | null, number, number] => [
    i,
    Math.max(0, i - 1),
    i === 0 ? null : 3,
    7,
    i === 2000 ? 7 : 0,
  ]);
  const tree = treeOf(document(rows));
  expect([...everyNode(tree)]).toHaveLength(2001);
  expect([...everyNode(collapseRecursion(tree))]).toHaveLength(2);
});

test("callers: outermost calls merged, every chain with its weight, what is not shown is a folded child", () => {
  // main → work → recurse → recurse (20), main → recurse (7), and 3 that the tree does not show.
  const tree = treeOf(
    document([
      [0, 0, null, 27, 0],
      [1, 0, 0, 27, 0],
      [2, 1, 1, 20, 0],
      [3, 2, 3, 20, 0],
      [4, 3, 3, 20, 20],
      [5, 1, 3, 7, 7],
    ]),
  );
  const callers = callersOf(tree, ({ name }) => name === "recurse", 30);
  if (!callers) throw new Error("no callers");
  expect(callers.value).toBe(30);
  expect(callers.children.map((child) => [nodeName(child), child.value])).toEqual([
    ["work", 20],
    ["main", 7],
    ["smaller calls", 3],
  ]);
  for (const node of everyNode(callers))
    expect(node.own + node.children.reduce((sum, child) => sum + child.value, 0)).toBe(node.value);
  expect(callersOf(tree, ({ name }) => name === "nobody", 27)).toBeUndefined();
});

describe("documents of a synthetic recording", () => {
  const recording = typicalRecording(3);
  const view = { recording, watermark: recording.durationNs, running: false };

  test.each(["live", "peak", "allocated", "freed", "grown", "temporary", "leaked"])(
    "%s: every node is own plus children",
    (metric) => {
      for (const inverted of ["false", "true"]) {
        const answer = flamegraph(
          view,
          new Map([
            ["metric", metric],
            ["inverted", inverted],
            ["max_nodes", "300"],
          ]),
        );
        const tree = treeOf(answer);
        for (const node of everyNode(tree)) {
          expect(node.own + node.children.reduce((sum, child) => sum + child.value, 0)).toBe(node.value);
        }
        expect(tree.value).toBe(answer.total);
      }
    },
  );
});
