// Flame graphs and tables of functions, worked out from a synthetic recording the slow and plain way. Test fixture.

import type { Flamegraph, Functions } from "../../src/api/types.ts";
import { readKeys, type SortableColumn, sortedRows } from "../../src/lib/sorting.ts";
import type { MockFrame } from "./recording.ts";
import { BadParameter, exactness, number, pattern, type Query, selected, type View } from "./shared.ts";

interface TreeNode {
  id: number;
  frame: MockFrame | null;
  value: number;
  weight: number;
  own: number;
  parent: TreeNode | null;
  children: Map<MockFrame, TreeNode>;
}

/** Ids must not depend on the query: they are numbers of paths, given out once a recording. */
const pathIds = new Map<string, number>();

function pathId(key: string): number {
  const known = pathIds.get(key);
  if (known !== undefined) return known;
  pathIds.set(key, pathIds.size + 1);
  return pathIds.size;
}

export function flamegraph(view: View, query: Query): Flamegraph {
  const unit = query.get("unit") === "count" ? "count" : "bytes";
  const inverted = query.get("inverted") === "true";
  const { blocks, range, at } = selected(view, query);
  const root: TreeNode = { id: 0, frame: null, value: 0, weight: 0, own: 0, parent: null, children: new Map() };
  for (const { block, stack, sign } of blocks) {
    const amount = sign * (unit === "bytes" ? block.size : 1);
    let node = root;
    let key = inverted ? "i" : "t";
    root.value += amount;
    root.weight += Math.abs(amount);
    const path = inverted ? stack : [...stack].reverse();
    for (const frame of path) {
      key += ` ${view.recording.frames.indexOf(frame)}`;
      let child = node.children.get(frame);
      if (!child) {
        child = { id: pathId(key), frame, value: 0, weight: 0, own: 0, parent: node, children: new Map() };
        node.children.set(frame, child);
      }
      child.value += amount;
      child.weight += Math.abs(amount);
      node = child;
    }
    node.own += amount;
  }
  let start = root;
  const asked = Number(query.get("root") ?? 0);
  if (asked > 0) {
    const found = findNode(root, asked);
    if (!found) throw new BadParameter("root", `There is no node ${asked} in this flame graph.`);
    start = found;
  }
  const least = (start.weight * Number(query.get("min_px") ?? 1)) / Number(query.get("width") ?? 1400);
  const budget = Number(query.get("max_nodes") ?? 2000);
  const frames: MockFrame[] = [];
  const index = (frame: MockFrame | null): number | null => {
    if (!frame) return null;
    const known = frames.indexOf(frame);
    return known >= 0 ? known : frames.push(frame) - 1;
  };
  const rows: Flamegraph["rows"] = { id: [], parent: [], frame: [], value: [], own: [], folded: [] };
  const work: [TreeNode, number][] = [[start, 0]];
  for (let next = work.pop(); next; next = work.pop()) {
    const [node, parent] = next;
    const row = rows.id.length;
    push(rows, node.id, parent, index(node.frame), node.value, node.own, 0);
    const children = [...node.children.values()].sort((a, b) => b.weight - a.weight);
    const wide = children.filter((child) => child.weight >= least && rows.id.length + work.length < budget);
    const rest = children.filter((child) => !wide.includes(child));
    for (const child of wide.reverse()) work.push([child, row]);
    if (rest.length > 0) {
      const value = rest.reduce((sum, child) => sum + child.value, 0);
      push(
        rows,
        node.id,
        row,
        null,
        value,
        value,
        rest.reduce((sum, child) => sum + countNodes(child), 0),
      );
    }
  }
  const ancestors: Flamegraph["ancestors"] = [];
  for (let node = start.parent; node; node = node.parent)
    ancestors.unshift({ id: node.id, frame: index(node.frame), value: node.value });
  return {
    schema: "heaptrace.flamegraph/1",
    freeing: false,
    pinned: false,
    metric: (query.get("metric") ?? "live") as Flamegraph["metric"],
    unit,
    from_ns: range.from,
    to_ns: range.to,
    at_ns: at,
    inverted,
    total: root.value,
    ancestors,
    rows,
    frames,
    exactness: exactness(view),
  };
}

function push(
  rows: Flamegraph["rows"],
  id: number,
  parent: number,
  frame: number | null,
  value: number,
  own: number,
  folded: number,
): void {
  rows.id.push(id);
  rows.parent.push(parent);
  rows.frame.push(frame);
  rows.value.push(value);
  rows.own.push(own);
  rows.folded.push(folded);
}

function findNode(root: TreeNode, id: number): TreeNode | undefined {
  const work = [root];
  for (let node = work.pop(); node; node = work.pop()) {
    if (node.id === id) return node;
    work.push(...node.children.values());
  }
  return undefined;
}

function countNodes(node: TreeNode): number {
  let count = 1;
  for (const child of node.children.values()) count += countNodes(child);
  return count;
}

export function functions(view: View, query: Query): Functions {
  const unit = query.get("unit") === "count" ? "count" : "bytes";
  const asked = (query.get("by") ?? "function") as Functions["by"];
  // No function here is a library's.
  const by = asked === "program" ? "function" : asked;
  const { blocks, range, at } = selected(view, query);
  const rows = new Map<string, Functions["rows"][number]>();
  let total = 0;
  for (const { block, stack, sign } of blocks) {
    const value = sign * (unit === "bytes" ? block.size : 1);
    const other = sign * (unit === "bytes" ? 1 : block.size);
    total += value;
    const seen = new Set<string>();
    const chain = by === "thread" || by === "site" ? stack.slice(0, 1) : stack;
    chain.forEach((frame, depth) => {
      const key =
        by === "function"
          ? `f${view.recording.frames.indexOf(frame)}`
          : by === "file"
            ? (frame.file ?? "unknown")
            : by === "module"
              ? frame.module
              : by === "thread"
                ? `t${block.thread}`
                : `s${block.site}`;
      let row = rows.get(key);
      if (!row) {
        const name =
          by === "file" || by === "module"
            ? key
            : by === "thread"
              ? (view.recording.threads[block.thread - 1]?.name ?? key)
              : frame.name;
        const shown = by === "function" || by === "site";
        row = {
          id: key,
          name,
          module: shown ? frame.module : null,
          file: shown ? frame.file : null,
          line: shown ? frame.line : null,
          library: shown && frame.library,
          flat: 0,
          cum: 0,
          flat_other: 0,
          cum_other: 0,
        };
        rows.set(key, row);
      }
      if (depth === 0) {
        row.flat += value;
        row.flat_other += other;
      }
      if (seen.has(key)) return;
      seen.add(key);
      row.cum += value;
      row.cum_other += other;
    });
  }
  const search = pattern(query, "search");
  const columns: SortableColumn<Functions["rows"][number]>[] = [
    { id: "flat", numeric: true, value: (row) => Math.abs(row.flat) },
    { id: "cum", numeric: true, value: (row) => Math.abs(row.cum) },
    { id: "name", value: (row) => row.name },
    { id: "other", numeric: true, value: (row) => Math.abs(row.flat_other) },
    { id: "module", value: (row) => row.module ?? "" },
  ];
  const found = [...rows.values()].filter((row) => !search || search.test(row.name));
  const list = sortedRows(found, columns, readKeys(query.get("sort"), undefined, { column: "flat", reversed: false }));
  const offset = number(query, "offset", 0);
  return {
    schema: "heaptrace.functions/1",
    metric: (query.get("metric") ?? "live") as Functions["metric"],
    unit,
    by: asked,
    from_ns: range.from,
    to_ns: range.to,
    at_ns: at,
    total,
    total_rows: list.length,
    rows: list.slice(offset, offset + number(query, "limit", 200)),
    exactness: exactness(view),
  };
}
