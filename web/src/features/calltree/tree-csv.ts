// The call tree as a table that is saved: a row for each function of each stack, callers above what they call.
import type { Flamegraph } from "../../api/types.ts";
import { buildTree, everyNode, type FlameNode, nodeName } from "../../lib/flame-tree.ts";
import type { SavedColumn } from "../../ui/data-table.tsx";

/** As many rows as the server gives at once; what is beyond them is in rows that say so. */
export const ALL_ROWS = { min_px: 0, max_nodes: 60_000 } as const;

/** Rows in the order of the tree, the root first. */
export function treeRows(document: Flamegraph): FlameNode[] {
  const tree = buildTree(document);
  return tree ? [...everyNode(tree)] : [];
}

/** Functions of the tree that have no row of their own. */
export function foldedIn(rows: readonly FlameNode[]): number {
  return rows.reduce((sum, { folded }) => sum + folded, 0);
}

export function treeColumns({ unit, total }: Flamegraph): SavedColumn<FlameNode>[] {
  const what = unit === "bytes" ? "bytes" : "blocks";
  return [
    { header: "Level", value: ({ depth }) => depth },
    { header: `Total (${what})`, value: ({ value }) => value },
    { header: "Total (%)", value: ({ value }) => (total === 0 ? 0 : (100 * value) / total) },
    { header: `Self (${what})`, value: ({ own }) => own },
    { header: "Function", value: nodeName },
    { header: "Module", value: ({ frame }) => frame?.module ?? "" },
    { header: "File", value: ({ frame }) => frame?.file ?? "" },
    { header: "Line", value: ({ frame }) => frame?.line ?? "" },
    { header: "Inlined", value: ({ frame }) => (frame?.inlined ? "yes" : "") },
  ];
}
