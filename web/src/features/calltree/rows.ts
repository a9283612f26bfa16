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
