// Where the frames of a tree lie: one row a level, positions as parts of the root's width (0 … 1). No drawing here.
import type { FlameFrame } from "../../api/types.ts";
import type { FlameNode } from "../../lib/flame-tree.ts";
import { finished } from "../../lib/in-steps.ts";

/** The frames of one depth, from left to right. They never overlap. */
export interface Level {
  nodes: FlameNode[];
  x0: Float64Array;
  x1: Float64Array;
}

export interface FlameLayout {
  root: FlameNode;
  levels: Level[];
  /** Frames of all levels. */
  count: number;
  /** From the smallest row of the document on: level and index of its frame; -1: it is not drawn. */
  firstRow: number;
  levelOf: Int32Array;
  indexOf: Int32Array;
}

export interface Place {
  level: number;
  index: number;
}

/** The part of the root's width that can be seen; `right` > `left`. */
export interface FlameView {
  left: number;
  right: number;
}

export const WHOLE: FlameView = { left: 0, right: 1 };

/** The tree of a graph that has not been drawn yet. */
export const NOTHING: FlameNode = {
  row: 0,
  id: 0,
  frame: undefined,
  value: 0,
  own: 0,
  weight: 0,
  folded: 0,
  depth: 0,
  parent: undefined,
  children: [],
};

/** Layouts of trees that are still used: to go back to a tree costs nothing. */
const known = new WeakMap<FlameNode, FlameLayout>();

/** The layout of a tree, made once. The tree must not change afterwards. */
export function layoutOf(root: FlameNode): FlameLayout {
  let layout = known.get(root);
  if (!layout) {
    layout = layOut(root);
    known.set(root, layout);
  }
  return layout;
}

/** Makes the layout of a tree in steps, for {@link layoutOf} to have. */
export function* layoutSteps(root: FlameNode): Generator<void, FlameLayout> {
  const layout = known.get(root) ?? (yield* levelSteps(root));
  known.set(root, layout);
  return layout;
}

/** Lays out a tree. Children without width are left out, like what hangs below them. */
export function layOut(root: FlameNode): FlameLayout {
  return finished(levelSteps(root));
}

/** A step is a level, or a part of a wide one. */
function* levelSteps(root: FlameNode): Generator<void, FlameLayout> {
  const levels: Level[] = [];
  let firstRow = root.row;
  let lastRow = root.row;
  const scale = root.weight > 0 ? 1 / root.weight : 0;
  let nodes = [root];
  let starts = [0];
  let count = 0;
  while (nodes.length > 0) {
    const level: Level = { nodes, x0: new Float64Array(nodes.length), x1: new Float64Array(nodes.length) };
    const below: FlameNode[] = [];
    const belowStarts: number[] = [];
    for (let index = 0; index < nodes.length; index += 1) {
      if (index % STEP_FRAMES === STEP_FRAMES - 1) yield;
      const node = nodes[index];
      if (!node) continue;
      const x0 = starts[index] ?? 0;
      level.x0[index] = x0;
      level.x1[index] = x0 + node.weight * scale;
      if (node.row < firstRow) firstRow = node.row;
      if (node.row > lastRow) lastRow = node.row;
      let next = x0;
      for (const child of node.children) {
        if (child.weight <= 0) continue;
        below.push(child);
        belowStarts.push(next);
        next += child.weight * scale;
      }
    }
    count += nodes.length;
    levels.push(level);
    yield;
    nodes = below;
    starts = belowStarts;
  }
  const levelOf = new Int32Array(lastRow - firstRow + 1).fill(-1);
  const indexOf = new Int32Array(lastRow - firstRow + 1);
  for (let depth = 0; depth < levels.length; depth += 1) {
    yield;
    const of = levels[depth]?.nodes ?? [];
    for (let index = 0; index < of.length; index += 1) {
      const at = (of[index]?.row ?? 0) - firstRow;
      levelOf[at] = depth;
      indexOf[at] = index;
    }
  }
  return { root, levels, count, firstRow, levelOf, indexOf };
}

/** Where the frame of a row is; nothing if it is not drawn. */
export function placeOf({ firstRow, levelOf, indexOf }: FlameLayout, row: number): Place | undefined {
  const level = levelOf[row - firstRow];
  return level === undefined || level < 0 ? undefined : { level, index: indexOf[row - firstRow] ?? 0 };
}

/** The node of a row that is drawn. */
export function nodeAt(layout: FlameLayout, row: number): FlameNode | undefined {
  const place = placeOf(layout, row);
  return place && layout.levels[place.level]?.nodes[place.index];
}

/** The frames of each function, for what lights all of one. */
export interface FunctionIndex {
  byFrame: Map<FlameFrame, FlameNode[]>;
  byName: Map<string, FlameFrame[]>;
}

const indexes = new WeakMap<FlameLayout, FunctionIndex>();

/** Which frames are of which function, made once. */
export function functionsOf(layout: FlameLayout): FunctionIndex {
  return finished(functionSteps(layout));
}

/** The same in steps of some thousand frames, for {@link functionsOf} to have. */
export function* functionSteps(layout: FlameLayout): Generator<void, FunctionIndex> {
  const known = indexes.get(layout);
  if (known) return known;
  const index: FunctionIndex = { byFrame: new Map(), byName: new Map() };
  let seen = 0;
  for (const level of layout.levels) {
    for (const node of level.nodes) {
      seen += 1;
      if (seen % STEP_FRAMES === 0) yield;
      if (!node.frame) continue;
      const same = index.byFrame.get(node.frame);
      if (same) {
        same.push(node);
        continue;
      }
      index.byFrame.set(node.frame, [node]);
      const named = index.byName.get(node.frame.name);
      if (named) named.push(node.frame);
      else index.byName.set(node.frame.name, [node.frame]);
    }
  }
  indexes.set(layout, index);
  return index;
}

/** Frames of a step. */
export const STEP_FRAMES = 4096;

/** Index of the first frame of a level that ends right of `x`; the level's length if there is none. */
export function firstEndingAfter(level: Level, x: number): number {
  let low = 0;
  let high = level.nodes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((level.x1[middle] ?? 0) > x) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The frame at a depth and a position; nothing where there is none. */
export function frameAt(layout: FlameLayout, depth: number, x: number): FlameNode | undefined {
  const level = layout.levels[depth];
  if (!level) return undefined;
  const index = firstEndingAfter(level, x);
  return (level.x0[index] ?? Number.POSITIVE_INFINITY) <= x ? level.nodes[index] : undefined;
}

/** Where a frame is, as a part of the root's width. */
export function spanOf(layout: FlameLayout, row: number): FlameView | undefined {
  const place = placeOf(layout, row);
  const level = place && layout.levels[place.level];
  if (!place || !level) return undefined;
  return { left: level.x0[place.index] ?? 0, right: level.x1[place.index] ?? 0 };
}

/** Narrower than this part of the root nothing is shown: beyond it, positions run out of digits. */
const NARROWEST = 1e-9;

/** The nearest view that lies within the root. */
export function clamped({ left, right }: FlameView): FlameView {
  const width = Math.min(1, Math.max(NARROWEST, right - left));
  const start = Math.min(1 - width, Math.max(0, left));
  return { left: start, right: start + width };
}

/** Zooms by a factor (below 1: in) about a point of the view, 0 at its left and 1 at its right edge. */
export function zoomed(view: FlameView, factor: number, about: number): FlameView {
  const width = view.right - view.left;
  const next = Math.min(1, Math.max(NARROWEST, width * factor));
  const fixed = view.left + width * about;
  return clamped({ left: fixed - next * about, right: fixed + next * (1 - about) });
}

/** Moves by a part of what is seen. */
export function panned(view: FlameView, part: number): FlameView {
  const by = (view.right - view.left) * part;
  return clamped({ left: view.left + by, right: view.right + by });
}

/** Between two views, at `t` from 0 to 1. Widths change by the same factor at every step, as the eye expects. */
export function between(from: FlameView, to: FlameView, t: number): FlameView {
  if (t >= 1) return to;
  const a = from.right - from.left;
  const b = to.right - to.left;
  const width = a * (b / a) ** t;
  // The point that both views have at the same part of their width stays where it is.
  const part = Math.abs(b - a) < NARROWEST ? t : (width - a) / (b - a);
  const left = from.left + (to.left - from.left) * part;
  return { left, right: left + width };
}

/** The smallest move that brings a frame into view; a frame too narrow to be seen is zoomed to. */
export function revealed(view: FlameView, frame: FlameView, leastPart: number): FlameView {
  const width = view.right - view.left;
  const own = frame.right - frame.left;
  if (own < width * leastPart) {
    const next = own / leastPart;
    const middle = (frame.left + frame.right) / 2;
    return clamped({ left: middle - next / 2, right: middle + next / 2 });
  }
  if (own >= width) return frame.right > view.left && frame.left < view.right ? view : clamped(frame);
  if (frame.left < view.left) return clamped({ left: frame.left, right: frame.left + width });
  if (frame.right > view.right) return clamped({ left: frame.right - width, right: frame.right });
  return view;
}

/** Takes a view of a frame that was at `from` to the same view of it at `to`, which may be beyond the root. */
export function mover(from: FlameView, to: FlameView): (view: FlameView) => FlameView {
  const factor = (to.right - to.left) / (from.right - from.left);
  const map = (x: number) => to.left + (x - from.left) * factor;
  return ({ left, right }) => ({ left: map(left), right: map(right) });
}
