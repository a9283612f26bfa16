// Comparisons in words, and the tree of a difference.
import { expect, test } from "vitest";
import type { DiffFlamegraph } from "../../src/api/types.ts";
import { changeText, isOfKind, kindOf } from "../../src/features/compare/change.ts";
import { changeColor } from "../../src/lib/colors.ts";
import { buildDiffTree, everyNode } from "../../src/lib/flame-tree.ts";

test("what happened between two sums", () => {
  expect([kindOf(0, 5), kindOf(5, 0), kindOf(5, 6), kindOf(6, 5), kindOf(5, 5)]).toEqual([
    "new",
    "gone",
    "grew",
    "shrank",
    undefined,
  ]);
  expect(isOfKind("grew", 0, 5) && isOfKind("new", 0, 5) && !isOfKind("shrank", 0, 5)).toBe(true);
  expect(isOfKind("new", 4, 5)).toBe(false);
  expect(isOfKind(undefined, 5, 5)).toBe(true);
});

test("changes as parts of what was there", () => {
  expect(changeText(200, 300)).toBe("+50.0%");
  expect(changeText(300, 200)).toBe("−33.3%");
  expect(changeText(10, 1000)).toBe("100 ×");
  expect([changeText(0, 1), changeText(1, 0), changeText(2, 2)]).toEqual(["new", "gone", "unchanged"]);
});

test("red and blue differ in hue alone, for both themes", () => {
  for (const theme of ["light", "dark"] as const) {
    const [grew, shrank] = [changeColor(5, 5, theme), changeColor(-5, 5, theme)];
    expect(grew.replace(/\d+\)$/, "")).toBe(shrank.replace(/\d+\)$/, ""));
    expect(grew).not.toBe(shrank);
  }
});

test("the tree of a difference has the server's widths, and changes as values", () => {
  const document = {
    rows: {
      id: [0, 3, 4, 3],
      parent: [0, 0, 1, 0],
      frame: [null, 0, 1, null],
      before: [10, 10, 4, 0],
      after: [14, 12, 0, 2],
      own_before: [0, 6, 4, 0],
      own_after: [0, 12, 0, 2],
      width: [18, 16, 4, 2],
      folded: [0, 0, 0, 2],
    },
    frames: [{ name: "main" }, { name: "gone" }],
  } as unknown as DiffFlamegraph;
  const tree = buildDiffTree(document);
  if (!tree) throw new Error("no tree");
  const nodes = [...everyNode(tree)];
  expect(nodes.map(({ weight }) => weight)).toEqual([18, 16, 4, 2]);
  expect(nodes.map(({ value }) => value)).toEqual([4, 2, -4, 2]);
  expect(tree.children.map(({ folded }) => folded)).toEqual([0, 2]);
});
