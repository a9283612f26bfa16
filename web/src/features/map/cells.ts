// Cells of the heap map, without a browser: the one under a pointer, its text, the filters of a choice of them.
import type { HeapMap } from "../../api/types.ts";
import { layerColor } from "../../lib/layers.ts";
import { ordered, type Patch } from "../../lib/patch.ts";

/** The cell at a point of the picture, whose rows go up with their addresses. */
export function cellAt(map: HeapMap, x: number, y: number): { row: number; column: number } {
  const within = (part: number, count: number) => Math.min(count - 1, Math.max(0, Math.floor(part * count)));
  const rows = map.addresses.length;
  return { row: rows - 1 - within(y, rows), column: within(x, map.t_ns.length) };
}

/** Sites with a colour of their own; the others share one. */
export const COLORED = 10;

/** What is left of the strength of a cell that a search does not find. */
const FAINT = 0.12;

/** Name of the colour of a cell, and how strong it is; nothing where nothing is. */
export function paintOf(
  map: HeapMap,
  row: number,
  column: number,
  /** Sites by their position that are in the foreground; the others are faint. */
  isFound?: readonly boolean[],
): { color: string; alpha: number } | undefined {
  const occupied = map.occupied[row]?.[column] ?? 0;
  if (occupied === 0) {
    const resident = map.resident[row]?.[column] ?? 0;
    return resident > 0 ? { color: "--grid", alpha: Math.max(0.3, resident / map.row_bytes) } : undefined;
  }
  const site = map.dominant[row]?.[column];
  const color = site == null || site >= COLORED ? "--layer-rest" : layerColor(site);
  const alpha = 0.25 + 0.75 * Math.min(1, occupied / map.row_bytes);
  const isFaint = isFound !== undefined && (site == null || isFound[site] !== true);
  return { color, alpha: isFaint ? alpha * FAINT : alpha };
}

/** The value of the filter that keeps the blocks of a patch: from its lowest address to behind its highest. */
export function addressesOf(map: HeapMap, patch: Patch): string {
  const { row, rowTo } = ordered(patch);
  return `${hex(map.addresses[row] ?? 0)}..${hex((map.addresses[rowTo] ?? 0) + map.row_bytes)}`;
}

/** The moment of a patch: its last. */
export function momentOf(map: HeapMap, patch: Patch): number {
  return map.t_ns[ordered(patch).columnTo] ?? map.to_ns;
}

/** The site with most bytes of a cell. */
export function siteOf(map: HeapMap, row: number, column: number): HeapMap["sites"][number] | undefined {
  const site = map.dominant[row]?.[column];
  return site == null ? undefined : map.sites[site];
}

/** Rows below which there is a gap: addresses that no block is in. */
export function gapsOf(map: HeapMap): number[] {
  return map.addresses.flatMap((address, row) =>
    row > 0 && (map.addresses[row - 1] ?? 0) + map.row_bytes < address ? [row] : [],
  );
}

export function hex(address: number): string {
  return `0x${address.toString(16)}`;
}
