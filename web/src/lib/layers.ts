// Layers that lie on one another: their upper edges, which one a point is in, what each is called.
import type { Breakdown } from "../api/types.ts";

/** Upper edges of layers, from the bottom up. */
export function stackUp(layers: readonly (readonly number[])[]): number[][] {
  const edges: number[][] = [];
  for (const layer of layers) {
    const below = edges.at(-1);
    edges.push(layer.map((value, i) => value + (below?.[i] ?? 0)));
  }
  return edges;
}

/** The layer that holds a value at a moment; none above the highest, and where there is none. */
export function layerAt(edges: readonly (readonly number[])[], at: number, value: number): number | undefined {
  if (value < 0) return undefined;
  const found = edges.findIndex((edge) => value < (edge[at] ?? 0));
  return found < 0 ? undefined : found;
}

/** Colours of layers, the largest first; what is left has its own. */
export function layerColor(index: number): string {
  return `--layer-${index % 10}`;
}

/** Layers of a breakdown from the bottom up: the rest lies lowest, then the smallest of the largest, the largest on top. */
export function layersOf(
  breakdown: Breakdown,
): { id: string; row: Breakdown["rows"][number] | undefined; color: string; values: number[] }[] {
  const rows = breakdown.rows.map((row, i) => ({ id: row.id, row, color: layerColor(i), values: row.bytes }));
  const rest = { id: "rest", row: undefined, color: "--layer-rest", values: breakdown.rest };
  const all = breakdown.rest_rows > 0 || breakdown.rest.some((bytes) => bytes !== 0) ? [...rows, rest] : rows;
  return all.reverse();
}
