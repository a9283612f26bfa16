// The lines of a call tree that are visible, given what is open and what was loaded since.
import { everyNode, type FlameNode } from "../../lib/flame-tree.ts";
import { isChosen } from "../../lib/identity.ts";

export interface TreeLine {
  key: string;
  node: FlameNode;
  depth: number;
  open: boolean;
  canOpen: boolean;
}

/** Children that were asked for later, by the id of their parent. */
export type Loaded = ReadonlyMap<number, readonly FlameNode[]>;

/** Ids are stable in a tree; a folded rest carries its parent's. */
export function keyOf(node: FlameNode): string {
  return node.folded > 0 ? `${node.id} rest` : String(node.id);
}

export function visibleLines(root: FlameNode, open: ReadonlySet<string>, loaded: Loaded): TreeLine[] {
  const lines: TreeLine[] = [];
  const stack: { node: FlameNode; depth: number }[] = [{ node: root, depth: 0 }];
  for (let next = stack.pop(); next; next = stack.pop()) {
    const { node, depth } = next;
    const key = keyOf(node);
    const children = node.folded > 0 ? [] : (loaded.get(node.id) ?? node.children);
    const isOpen = open.has(key);
    lines.push({ key, node, depth, open: isOpen, canOpen: children.length > 0 || node.folded > 0 });
    if (!isOpen) continue;
    for (let i = children.length - 1; i >= 0; i -= 1) {
      const child = children[i];
      if (child) stack.push({ node: child, depth: depth + 1 });
    }
  }
  return lines;
}

/** The way that the weight takes: open as long as one child has more than half. */
export function heaviestPath(root: FlameNode): Set<string> {
  const open = new Set<string>();
  for (let node: FlameNode | undefined = root; node; ) {
    open.add(keyOf(node));
    const [first]: FlameNode[] = node.children;
    node = first && first.folded === 0 && first.weight * 2 > node.weight ? first : undefined;
  }
  return open;
}

/** What must be open for the heaviest line of a function to be seen; nothing if the tree has none. */
export function pathTo(root: FlameNode, chosen: string): Set<string> {
  let found: FlameNode | undefined;
  for (const node of everyNode(root)) {
    if (isChosen(node.frame, chosen) && (found === undefined || node.weight > found.weight)) found = node;
  }
  const open = new Set<string>();
  for (let above = found?.parent; above; above = above.parent) open.add(keyOf(above));
  return open;
}

export interface TreeMatches {
  /** Nodes whose function matches, in the order of the tree. */
  nodes: FlameNode[];
  /** What goes through a match: a match below a match counts once. */
  value: number;
  /** What must be open for the heaviest of them to be seen. */
  open: Set<string>;
}

/** Ways to more matches than this are not opened: they would be the whole tree. */
const MOST_OPENED = 300;

/** Where a pattern matches in the tree, closed branches included. */
export function matchesIn(root: FlameNode, test: (name: string) => boolean): TreeMatches {
  const nodes: FlameNode[] = [];
  let value = 0;
  const stack: { node: FlameNode; below: boolean }[] = [{ node: root, below: false }];
  for (let next = stack.pop(); next; next = stack.pop()) {
    const { node, below } = next;
    const hit = node.frame != null && test(node.frame.name);
    if (hit) {
      nodes.push(node);
      if (!below) value += node.value;
    }
    for (let i = node.children.length - 1; i >= 0; i -= 1) {
      const child = node.children[i];
      if (child) stack.push({ node: child, below: below || hit });
    }
  }
  const open = new Set<string>();
  const heaviest = nodes.length > MOST_OPENED ? [...nodes].sort((a, b) => b.weight - a.weight) : nodes;
  for (const node of heaviest.slice(0, MOST_OPENED))
    for (let above = node.parent; above; above = above.parent) open.add(keyOf(above));
  return { nodes, value, open };
}
