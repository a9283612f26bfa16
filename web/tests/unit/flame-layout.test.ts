// Where frames lie, what is seen of them, and what is written on them.
import { describe, expect, test } from "vitest";
import type { FlameNode } from "../../src/lib/flame-tree.ts";
import { boxName, TextFitter } from "../../src/ui/flame/box-text.ts";
import { coloringOf, namespaceOf } from "../../src/ui/flame/coloring.ts";
import {
  between,
  clamped,
  frameAt,
  layOut,
  mover,
  panned,
  revealed,
  spanOf,
  WHOLE,
  zoomed,
} from "../../src/ui/flame/layout.ts";
import { mappedLevels } from "../../src/ui/flame/minimap.ts";

let rows = 0;
function node(weight: number, children: FlameNode[] = [], name = "f", module = "m", file = "f.c"): FlameNode {
  const frame = { name, module, file, line: null, inlined: false, library: false };
  const made: FlameNode = {
    row: rows,
    id: rows,
    frame,
    value: weight,
    own: 0,
    weight,
    folded: 0,
    depth: 0,
    parent: undefined,
    children,
  };
  rows += 1;
  for (const child of children) child.parent = made;
  return made;
}

describe("layout", () => {
  const grandchild = node(2);
  const left = node(6, [grandchild]);
  const right = node(2);
  const empty = node(0, [node(0)]);
  const root = node(10, [left, right, empty]);
  const layout = layOut(root);

  test("levels hold their frames from left to right; what has no width is left out", () => {
    expect(layout.levels.map((level) => level.nodes)).toEqual([[root], [left, right], [grandchild]]);
    expect(layout.count).toBe(4);
    expect(spanOf(layout, right.row)?.left).toBeCloseTo(0.6, 12);
    expect(spanOf(layout, right.row)?.right).toBeCloseTo(0.8, 12);
    expect(spanOf(layout, empty.row)).toBeUndefined();
  });

  test("a deep recursion of a few frames does not take the height of the small picture", () => {
    let deep = node(1);
    for (let depth = 0; depth < 400; depth += 1) deep = node(1, [deep]);
    expect(mappedLevels(layOut(node(1000, [node(600, [node(500)]), deep])))).toBe(3);
    expect(mappedLevels(layout)).toBe(3);
  });

  test("a point has one frame or none", () => {
    expect(frameAt(layout, 0, 0.99)).toBe(root);
    expect(frameAt(layout, 1, 0.1)).toBe(left);
    expect(frameAt(layout, 1, 0.7)).toBe(right);
    expect(frameAt(layout, 1, 0.9)).toBeUndefined();
    expect(frameAt(layout, 2, 0.3)).toBeUndefined();
    expect(frameAt(layout, 3, 0.1)).toBeUndefined();
    expect(frameAt(layout, -1, 0.1)).toBeUndefined();
  });

  test("fifty thousand frames are laid out and found", () => {
    const wide = node(
      50_000,
      Array.from({ length: 50_000 }, () => node(1)),
    );
    const large = layOut(wide);
    expect(large.count).toBe(50_001);
    for (const i of [0, 7, 24_999, 49_999]) expect(frameAt(large, 1, (i + 0.5) / 50_000)).toBe(wide.children[i]);
  });
});

describe("view", () => {
  test("what is seen of a frame is carried to where the frame lies in another tree", () => {
    const carry = mover({ left: 0.2, right: 0.6 }, { left: 0, right: 1 });
    expect(carry({ left: 0.3, right: 0.4 }).left).toBeCloseTo(0.25, 12);
    expect(carry({ left: 0.3, right: 0.4 }).right).toBeCloseTo(0.5, 12);
  });

  test("zooming keeps the point under the pointer, and never leaves the root", () => {
    const view = { left: 0.2, right: 0.6 };
    const closer = zoomed(view, 0.5, 0.25);
    expect(closer.left + (closer.right - closer.left) * 0.25).toBeCloseTo(0.3, 10);
    expect(closer.right - closer.left).toBeCloseTo(0.2, 10);
    expect(zoomed(view, 100, 0.5)).toEqual(WHOLE);
    expect(panned(WHOLE, 0.5)).toEqual(WHOLE);
    expect(panned(view, 10).left).toBeCloseTo(0.6, 12);
    expect(clamped({ left: 0.9, right: 1.3 }).right).toBe(1);
  });

  test("a glide begins and ends where it should, and keeps what both ends share", () => {
    const from = WHOLE;
    const to = { left: 0.5, right: 0.5001 };
    expect(between(from, to, 0).left).toBeCloseTo(from.left, 9);
    expect(between(from, to, 1)).toBe(to);
    for (const t of [0.1, 0.5, 0.9]) {
      const view = between(from, to, t);
      expect(view.left).toBeLessThanOrEqual(to.left);
      expect(view.right).toBeGreaterThanOrEqual(to.right);
    }
    expect(between({ left: 0, right: 0.2 }, { left: 0.4, right: 0.6 }, 0.5).left).toBeCloseTo(0.2, 10);
  });

  test("a frame is brought into view by the smallest move", () => {
    const view = { left: 0.4, right: 0.6 };
    expect(revealed(view, { left: 0.45, right: 0.5 }, 0.01)).toBe(view);
    expect(revealed(view, { left: 0.1, right: 0.2 }, 0.01).left).toBeCloseTo(0.1, 10);
    expect(revealed(view, { left: 0.8, right: 0.9 }, 0.01).right).toBeCloseTo(0.9, 10);
    // Too narrow to be seen: zoomed to.
    const narrow = revealed(WHOLE, { left: 0.5, right: 0.50001 }, 0.01);
    expect(narrow.right - narrow.left).toBeCloseTo(0.001, 10);
  });
});

describe("text", () => {
  test.each([
    ["main", "main"],
    ["void fold<std::map<int, long> >(std::map<int, long>&, int)", "fold<std::map<int, long>>"],
    ["build_matrix(unsigned long)", "build_matrix"],
    ["operator new(unsigned long)", "operator new"],
    ["main::{lambda(int)#3}::operator()(int) const", "main::{lambda(int)#3}::operator()"],
    ["A::operator()", "A::operator()"],
    ["std::ostream& std::operator<< <char>(std::ostream&, char)", "std::operator<< <char>"],
    ["(anonymous namespace)::helper(int)", "(anonymous namespace)::helper"],
    ["run()::{lambda()#1}::inner", "run()::{lambda()#1}::inner"],
    ["<alloc::vec::Vec<T> as core::ops::Drop>::drop", "<alloc::vec::Vec<T> as core::ops::Drop>::drop"],
    ["call::<fn(i32) -> bool>", "call::<fn(i32) -> bool>"],
    ["рекурсия(int)", "рекурсия"],
    ["(", "("],
    [")", ")"],
    ["", ""],
  ])("%s", (name, expected) => {
    expect(boxName(name)).toBe(expected);
  });

  test("as much as fits, with dots for the rest", () => {
    let measured = 0;
    const fitter = new TextFitter((text) => {
      measured += 1;
      return text.length * 6;
    });
    expect(fitter.fit("abcdef", 36)).toBe("abcdef");
    expect(fitter.fit("abcdef", 35)).toBe("abcd…");
    expect(fitter.fit("abcdef", 12)).toBe("");
    // Characters are measured once.
    const before = measured;
    fitter.fit("fedcba", 30);
    expect(measured).toBe(before);
    // Never half of a character.
    expect(fitter.fit("😀😀😀😀", 40)).toBe("😀😀…");
  });
});

describe("colours", () => {
  test("namespaces", () => {
    expect(namespaceOf("v8::internal::Heap::Allocate(int)")).toBe("v8::internal");
    expect(namespaceOf("std::vector<a::b>::push")).toBe("std::vector");
    expect(namespaceOf("main")).toBeUndefined();
  });

  test("by module, unless one has nearly all: then by what tells frames apart", () => {
    const two = node(10, [node(6, [], "a", "x"), node(4, [], "b", "y")], "r", "z");
    expect(coloringOf(two)).toMatchObject({ by: "module", why: undefined });
    const files = node(10, [node(6, [], "a", "x", "a.c"), node(4, [], "b", "x", "b.c")], "r", "x", "r.c");
    const chosen = coloringOf(files);
    expect(chosen.by).toBe("file");
    expect(chosen.why).toContain("x has 100%");
    const plain = node(10, [node(6, [], "a", "x", "a.c"), node(4, [], "b", "x", "a.c")], "r", "x", "a.c");
    expect(coloringOf(plain).by).toBe("function");
    expect(coloringOf(plain, "module")).toMatchObject({ by: "module", why: undefined });
    // System libraries are pale: what they have of the picture tells nothing apart.
    const deep = node(
      10,
      [node(10, [node(6, [], "a", "x", "a.c"), node(4, [], "b", "x", "b.c")], "m", "libc.so.6")],
      "s",
      "ld-linux.so.2",
    );
    expect(coloringOf(deep)).toMatchObject({ by: "file", why: expect.stringContaining("x has 100%") });
    expect(coloringOf(deep).groups.map((group) => group.name)).toEqual(["a.c", "b.c"]);
    expect(coloringOf(deep, "function").groups.map((group) => group.name)).toEqual(["a", "b"]);
    const parts = coloringOf(two).groups.map((group) => group.part);
    expect(parts.reduce((a, b) => a + b)).toBeCloseTo(1, 10);
  });
});
