// From the columns of a flame graph document to a tree, and what can be asked of the tree. No drawing here.

import type { DiffFlamegraph, FlameFrame, Flamegraph, Frame } from "../api/types.ts";
import { plural } from "./format.ts";
import { finished } from "./in-steps.ts";

export interface FlameNode {
  /** Row of the document; what drawing and focus refer to. */
  row: number;
  /** Give it to the server as `root=`. Synthetic nodes carry their parent's. */
  id: number;
  frame: FlameFrame | undefined;
  /** Own and descendants' sum; negative only for metric `grown`. */
  value: number;
  own: number;
  /** Own and descendants' sum in the other unit, where it is known. */
  other?: number | undefined;
  /** What is drawn as width: the sum of magnitudes, so that growth and shrinking do not cancel out. */
  weight: number;
  /** Functions that were folded into this node; 0 for ordinary nodes, infinite where nobody counted. */
  folded: number;
  depth: number;
  /** Both sides, in a graph of a difference; `value` is then the change. */
  sides?: Sides;
  parent: FlameNode | undefined;
  /** Widest first, the folded rest last. */
  children: FlameNode[];
}

/** Sums of a frame before and after. */
export interface Sides {
  before: number;
  after: number;
  ownBefore: number;
  ownAfter: number;
}

/** The tree of a difference: widths are the server's, values are changes. */
export function buildDiffTree({ rows, frames }: DiffFlamegraph): FlameNode | undefined {
  const nodes: FlameNode[] = [];
  for (let row = 0; row < rows.id.length; row += 1) {
    const frameIndex = rows.frame[row];
    const parent = row === 0 ? undefined : nodes[rows.parent[row] ?? 0];
    const sides: Sides = {
      before: rows.before[row] ?? 0,
      after: rows.after[row] ?? 0,
      ownBefore: rows.own_before[row] ?? 0,
      ownAfter: rows.own_after[row] ?? 0,
    };
    const node: FlameNode = {
      row,
      id: rows.id[row] ?? 0,
      frame: frameIndex === null || frameIndex === undefined ? undefined : frames[frameIndex],
      value: sides.after - sides.before,
      own: sides.ownAfter - sides.ownBefore,
      weight: rows.width[row] ?? 0,
      folded: rows.folded[row] ?? 0,
      depth: parent ? parent.depth + 1 : 0,
      sides,
      parent,
      children: [],
    };
    parent?.children.push(node);
    nodes.push(node);
  }
  for (const node of nodes) sortChildren(node);
  return nodes[0];
}

/**
 * The tree of a document. Rows come in pre-order, so every parent is there before its children.
 * `depth` is the root's.
 */
export function buildTree(document: Flamegraph, depth = 0): FlameNode | undefined {
  return finished(treeSteps(document, depth));
}

/** The same in steps of some thousand rows: a large tree takes longer than a page may stand still. */
export function* treeSteps({ rows, frames }: Flamegraph, depth = 0): Generator<void, FlameNode | undefined> {
  const nodes: FlameNode[] = [];
  for (let row = 0; row < rows.id.length; row += 1) {
    if (row % STEP_ROWS === STEP_ROWS - 1) yield;
    const frameIndex = rows.frame[row];
    const parent = row === 0 ? undefined : nodes[rows.parent[row] ?? 0];
    const node: FlameNode = {
      row,
      id: rows.id[row] ?? 0,
      frame: frameIndex === null || frameIndex === undefined ? undefined : frames[frameIndex],
      value: rows.value[row] ?? 0,
      own: rows.own[row] ?? 0,
      other: rows.other?.[row] ?? undefined,
      weight: 0,
      folded: rows.folded[row] ?? 0,
      depth: parent ? parent.depth + 1 : depth,
      parent,
      children: [],
    };
    parent?.children.push(node);
    nodes.push(node);
  }
  for (let row = nodes.length - 1; row >= 0; row -= 1) {
    if (row % STEP_ROWS === 0) yield;
    const node = nodes[row];
    if (node) finish(node);
  }
  if (nodes[0]) inRows.set(nodes[0], nodes);
  return nodes[0];
}

/** Rows of a step. */
const STEP_ROWS = 4096;

/** The nodes of a tree by row, where the tree was made of a document. */
const inRows = new WeakMap<FlameNode, readonly FlameNode[]>();
const byId = new WeakMap<FlameNode, Map<number, FlameNode>>();

/** The node of a row of a tree. */
export function nodeAtRow(root: FlameNode, row: number): FlameNode | undefined {
  let list = inRows.get(root);
  if (!list) {
    const made: FlameNode[] = [];
    for (const node of everyNode(root)) if (node.row >= 0) made[node.row] = node;
    list = made;
    inRows.set(root, list);
  }
  if (row >= 0) return list[row];
  // Callers above a tree that begins further down.
  let at = list[0]?.parent;
  while (at && at.row > row) at = at.parent;
  return at?.row === row ? at : undefined;
}

/**
 * The tree of a document that begins further down (made with `depth` = number of its ancestors), with its callers above
 * it: each has one child and its width, but its own value. What else they call is not known here, so `own` is no number.
 */
export function withCallers(tree: FlameNode, { ancestors, frames }: Flamegraph): FlameNode {
  let root: FlameNode | undefined;
  let above: FlameNode | undefined;
  for (const [depth, ancestor] of ancestors.entries()) {
    const node: FlameNode = {
      row: depth - ancestors.length,
      id: ancestor.id,
      frame: ancestor.frame == null ? undefined : frames[ancestor.frame],
      value: ancestor.value,
      own: Number.NaN,
      weight: tree.weight,
      folded: 0,
      depth,
      parent: above,
      children: [],
    };
    above?.children.push(node);
    root ??= node;
    above = node;
  }
  if (!root || !above) return tree;
  tree.parent = above;
  above.children.push(tree);
  const nodes = inRows.get(tree);
  if (nodes) inRows.set(root, nodes);
  return root;
}

/** The ordinary node with this id; ids are unique but for folded rests, which carry their parent's. */
export function nodeWithId(root: FlameNode, id: number): FlameNode | undefined {
  for (const node of everyNode(root)) if (node.id === id && node.folded === 0) return node;
  return undefined;
}

/** The same, of a tree that is asked often: all its nodes are looked at once. */
export function nodeById(root: FlameNode, id: number): FlameNode | undefined {
  let nodes = byId.get(root);
  if (!nodes) {
    nodes = new Map();
    for (const node of inRows.get(root) ?? everyNode(root)) if (node.folded === 0) nodes.set(node.id, node);
    byId.set(root, nodes);
  }
  return nodes.get(id);
}

/** Whether something is folded below a node that would have this part of its width. */
export function hidesMoreThan(node: FlameNode, part: number): boolean {
  const least = node.weight * part;
  // What is narrower holds nothing that is wide enough.
  const open = [node];
  for (let at = open.pop(); at; at = open.pop()) {
    for (const below of at.children) {
      if (below.weight < least) continue;
      if (below.folded > 0) return true;
      open.push(below);
    }
  }
  return false;
}

/** Weight and order of a node whose children are finished. */
function finish(node: FlameNode): void {
  node.weight = Math.abs(node.own);
  for (const child of node.children) node.weight += child.weight;
  sortChildren(node);
}

function sortChildren(node: FlameNode): void {
  if (node.children.length > 1)
    node.children.sort((a, b) => Number(a.folded > 0) - Number(b.folded > 0) || b.weight - a.weight || a.row - b.row);
}

/** Draws direct recursion as one frame: a child with its parent's frame is merged into it, repeatedly. */
export function collapseRecursion(root: FlameNode): FlameNode {
  const merge = (node: FlameNode, parent: FlameNode | undefined, depth: number): FlameNode => {
    const out: FlameNode = { ...node, parent, depth, children: [] };
    const groups = new Map<FlameFrame | FlameNode, FlameNode>();
    const queue = [...node.children];
    for (let i = 0; i < queue.length; i += 1) {
      const child = queue[i];
      if (!child) continue;
      if (child.frame && child.frame === node.frame) {
        out.own += child.own;
        queue.push(...child.children);
        continue;
      }
      const key = child.frame ?? child;
      const same = groups.get(key);
      if (!same) {
        groups.set(key, { ...child, children: [...child.children] });
        continue;
      }
      same.value += child.value;
      same.other = same.other === undefined || child.other === undefined ? undefined : same.other + child.other;
      same.own += child.own;
      same.children.push(...child.children);
    }
    out.children = [...groups.values()].map((child) => merge(child, out, depth + 1));
    finish(out);
    return out;
  };
  return merge(root, undefined, 0);
}

/**
 * Who calls a function: its outermost calls in a top-down tree, merged at the root, their callers as children.
 * What `total` knows of and the tree does not show is a folded child.
 */
export function callersOf(
  tree: FlameNode,
  isWanted: (frame: FlameFrame) => boolean,
  total: number,
): FlameNode | undefined {
  let rows = 0;
  const make = (from: FlameNode, parent: FlameNode | undefined): FlameNode => {
    const node: FlameNode = {
      ...from,
      row: rows,
      other: undefined,
      value: 0,
      own: 0,
      weight: 0,
      folded: 0,
      depth: parent ? parent.depth + 1 : 0,
      parent,
      children: [],
    };
    rows += 1;
    parent?.children.push(node);
    return node;
  };
  let root: FlameNode | undefined;
  const work = [tree];
  for (let node = work.pop(); node; node = work.pop()) {
    if (!node.frame || !isWanted(node.frame)) {
      work.push(...node.children);
      continue;
    }
    root ??= make(node, undefined);
    let at = root;
    at.value += node.value;
    for (let above = node.parent; above?.frame; above = above.parent) {
      const { frame } = above;
      at = at.children.find((child) => child.frame === frame) ?? make(above, at);
      at.value += node.value;
    }
    // The outermost caller is where the chain ends: the weight is its own.
    at.own += node.value;
  }
  if (!root) return undefined;
  const missing = total - root.value;
  if (missing !== 0) {
    const rest = make(root, root);
    Object.assign(rest, { frame: undefined, value: missing, own: missing, folded: Number.POSITIVE_INFINITY });
    root.value = total;
  }
  for (const node of [...everyNode(root)].reverse()) finish(node);
  return root;
}

export function* everyNode(root: FlameNode): Generator<FlameNode> {
  const stack = [root];
  for (let node = stack.pop(); node; node = stack.pop()) {
    yield node;
    for (let i = node.children.length - 1; i >= 0; i -= 1) {
      const child = node.children[i];
      if (child) stack.push(child);
    }
  }
}

/** What a node is called where there is room for one line. */
export function nodeName(node: FlameNode): string {
  if (node.folded === Number.POSITIVE_INFINITY) return "smaller calls";
  if (node.folded > 0) return plural(node.folded, "smaller function");
  return node.frame?.name ?? "all";
}

/** The part of everything that is folded away right below the root, where that is most of it; else nothing. */
export function mostlyFolded(root: FlameNode): FlameNode | undefined {
  const rest = root.children.find((child) => child.folded > 0);
  return rest && rest.weight > root.weight / 2 ? rest : undefined;
}

export interface Matches {
  rows: Set<number>;
  /** Sum over the topmost matches: never more than the whole. */
  value: number;
}

export function findMatches(root: FlameNode, test: (text: string) => boolean): Matches {
  const rows = new Set<number>();
  let value = 0;
  // Many nodes, few functions: each is tried once.
  const tried = new Map<FlameFrame, boolean>();
  const passes = (frame: FlameFrame): boolean => {
    let hit = tried.get(frame);
    if (hit === undefined) {
      // The same two texts that the server's `focus` looks at.
      hit = test(frame.name) || test(frame.file ?? "");
      tried.set(frame, hit);
    }
    return hit;
  };
  const visit: { node: FlameNode; inside: boolean }[] = [{ node: root, inside: false }];
  for (let next = visit.pop(); next; next = visit.pop()) {
    const { node, inside } = next;
    const { frame } = node;
    const hit = frame !== undefined && passes(frame);
    if (hit) rows.add(node.row);
    if (hit && !inside) value += node.value;
    for (const child of node.children) visit.push({ node: child, inside: inside || hit });
  }
  return { rows, value };
}

/** The neighbour that an arrow key leads to, as the tree is drawn downwards. */
export function neighbour(
  node: FlameNode,
  direction: "caller" | "callee" | "previous" | "next",
): FlameNode | undefined {
  if (direction === "caller") return node.parent;
  if (direction === "callee") return node.children[0];
  const step = direction === "next" ? 1 : -1;
  // Across subtrees, like the eye: the next frame at the same depth.
  let up: FlameNode | undefined = node;
  while (up?.parent) {
    const siblings: FlameNode[] = up.parent.children;
    const beside: FlameNode | undefined = siblings[siblings.indexOf(up) + step];
    const found = beside && atDepth(beside, node.depth, step);
    if (found) return found;
    up = up.parent;
  }
  return undefined;
}

function atDepth(node: FlameNode, depth: number, step: number): FlameNode | undefined {
  if (node.depth === depth) return node;
  const children = step > 0 ? node.children : [...node.children].reverse();
  for (const child of children) {
    const found = atDepth(child, depth, step);
    if (found) return found;
  }
  return undefined;
}

/** The stack of a node, leaf first, with the frames above the tree's asked root. */
export function stackOf(node: FlameNode, document: Flamegraph): Frame[] {
  const frames: FlameFrame[] = [];
  let top = node;
  for (let at: FlameNode | undefined = node; at; at = at.parent) {
    if (at.frame) frames.push(at.frame);
    top = at;
  }
  // A tree that has its callers begins at the root of all.
  const missing = top.row < 0 ? 0 : document.ancestors.length;
  for (let i = missing - 1; i >= 0; i -= 1) {
    const index = document.ancestors[i]?.frame;
    const frame = index === null || index === undefined ? undefined : document.frames[index];
    if (frame) frames.push(frame);
  }
  if (document.inverted) frames.reverse();
  return frames.map((frame) => ({
    function: frame.name,
    file: frame.file ?? null,
    line: frame.line ?? null,
    module: frame.module ?? null,
    inlined: frame.inlined,
    library: frame.library,
    address: "",
  }));
}
