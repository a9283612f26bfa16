// A flame graph cut at a function, from one that is there already: what the server answers to `focus` and `show_from`
// with the pattern of a function. What the whole graph had folded away stays folded here.
import type { FlameFrame, Flamegraph } from "./types.ts";

/** Only stacks with the function (`focus`), or these from the function on (`show_from`). */
export type Cut = "focus" | "show_from";

interface Node {
  frame: number | null;
  id: number;
  value: number;
  own: number;
  folded: number;
  children: Map<number | null, Node>;
}

const node = (frame: number | null, id: number): Node => ({
  frame,
  id,
  value: 0,
  own: 0,
  folded: 0,
  children: new Map(),
});

/**
 * The cut graph; `total` is what is known to have the function on its stack (`undefined`: as much as is seen), and what
 * of it is not seen is one folded row.
 */
export function cutAt(
  graph: Flamegraph,
  isWanted: (frame: FlameFrame) => boolean,
  cut: Cut,
  total: number | undefined,
): Flamegraph {
  const { rows, frames } = graph;
  const count = rows.id.length;
  // Whether the function is at or above a row, and whether at the row for the first time.
  const inside: boolean[] = [];
  const top: boolean[] = [];
  for (let row = 0; row < count; row += 1) {
    const above = row > 0 && (inside[rows.parent[row] ?? 0] ?? false);
    const frame = rows.frame[row];
    const found = frame === null || frame === undefined ? undefined : frames[frame];
    const hit = found !== undefined && isWanted(found);
    top[row] = hit && !above;
    inside[row] = hit || above;
  }
  const root = node(null, rows.id[0] ?? 0);
  // For each row of the graph, the node that shows it.
  const shown: (Node | undefined)[] = [];
  const value = (row: number) => rows.value[row] ?? 0;
  // With `focus`, callers hold what their callees with the function do.
  const kept = rows.id.map((_, row) => (inside[row] ? value(row) : 0));
  for (let row = count - 1; row > 0; row -= 1) {
    const parent = rows.parent[row] ?? 0;
    if (!inside[parent]) kept[parent] = (kept[parent] ?? 0) + (kept[row] ?? 0);
  }
  shown[0] = root;
  for (let row = 1; row < count; row += 1) {
    const amount = kept[row] ?? 0;
    if (!inside[row] && (cut === "show_from" || amount === 0)) continue;
    const parent = cut === "show_from" && top[row] ? root : shown[rows.parent[row] ?? 0];
    if (!parent) continue;
    const folded = rows.folded[row] ?? 0;
    const key = folded > 0 ? null : (rows.frame[row] ?? null);
    let at = parent.children.get(key);
    if (!at) {
      at = node(key, rows.id[row] ?? 0);
      parent.children.set(key, at);
    }
    at.value += amount;
    at.own += inside[row] ? (rows.own[row] ?? 0) : 0;
    at.folded += folded;
    shown[row] = at;
  }
  const seen = [...root.children.values()].reduce((sum, child) => sum + child.value, 0);
  const all = total ?? seen;
  if (all > seen) {
    // Under `show_from` the function is the only row below the root: what is not seen is below it.
    const [only] = cut === "show_from" ? [...root.children.values()] : [root];
    const holder = only ?? root;
    if (holder !== root) holder.value += all - seen;
    let rest = holder.children.get(null);
    if (!rest) {
      rest = node(null, holder.id);
      holder.children.set(null, rest);
    }
    rest.value += all - seen;
    rest.own += all - seen;
    rest.folded += 1;
  }
  root.value = all;
  return { ...graph, total: all, ancestors: [], rows: flattened(root) };
}

/** Pre-order. */
function flattened(root: Node): Flamegraph["rows"] {
  const rows: Flamegraph["rows"] = { id: [], parent: [], frame: [], value: [], own: [], folded: [] };
  const work: [Node, number][] = [[root, 0]];
  for (let next = work.pop(); next; next = work.pop()) {
    const [{ id, frame, value, own, folded, children }, parent] = next;
    const at = rows.id.length;
    rows.id.push(id);
    rows.parent.push(parent);
    rows.frame.push(frame);
    rows.value.push(value);
    rows.own.push(own);
    rows.folded.push(folded);
    for (const child of children.values()) work.push([child, at]);
  }
  return rows;
}
