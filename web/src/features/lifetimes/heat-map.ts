// The heat map of lifetimes against sizes, without a browser.
import type { Lifetimes } from "../../api/types.ts";
import { ordered, type Patch } from "../../lib/patch.ts";
import type { Filters } from "../../lib/search-params.ts";

export interface HeatMap {
  /** Lower bounds of the columns that hold blocks, and of the one after. */
  lifetimes: number[];
  sizes: number[];
  /** `values[size][lifetime]`, smallest size first. */
  values: number[][];
  counts: number[][];
  bytes: number[][];
  largest: number;
}

/** Only rows and columns from the first to the last that hold a block. */
export function buildHeatMap(document: Lifetimes, unit: "bytes" | "count"): HeatMap | undefined {
  const { map_lifetime: lifetimes, map_size: sizes, map_count: counts, map_bytes: bytes } = document;
  const columns = lifetimes.length;
  const usedColumns: number[] = [];
  const usedRows: number[] = [];
  counts.forEach((count, i) => {
    if (count === 0) return;
    usedColumns.push(i % columns);
    usedRows.push(Math.floor(i / columns));
  });
  if (usedRows.length === 0) return undefined;
  const [c0, c1, r0, r1] = [min(usedColumns), max(usedColumns), min(usedRows), max(usedRows)];
  const cut = (all: readonly number[]) =>
    range(r0, r1).map((row) => range(c0, c1).map((column) => all[row * columns + column] ?? 0));
  const cutCounts = cut(counts);
  const cutBytes = cut(bytes);
  const values = unit === "bytes" ? cutBytes : cutCounts;
  return {
    lifetimes: lifetimes.slice(c0, c1 + 2),
    sizes: sizes.slice(r0, r1 + 2),
    values,
    counts: cutCounts,
    bytes: cutBytes,
    largest: max(values.map((row) => max(row))),
  };
}

/** Blocks by the lower bounds of a cell: maps of other blocks begin and end elsewhere. */
export function countsOf({
  map_size: sizes,
  map_lifetime: lifetimes,
  map_count: counts,
}: Lifetimes): (size: number | undefined, lifetime: number | undefined) => number {
  const rows = new Map(sizes.map((size, row) => [size, row]));
  const columns = new Map(lifetimes.map((lifetime, column) => [lifetime, column]));
  return (size, lifetime) => {
    const row = rows.get(size ?? Number.NaN);
    const column = columns.get(lifetime ?? Number.NaN);
    return row === undefined || column === undefined ? 0 : (counts[row * lifetimes.length + column] ?? 0);
  };
}

/** The filters that keep exactly the blocks of the patch; an open class has no upper bound. */
export function filtersOf(map: HeatMap, patch: Patch): Filters {
  const { row, rowTo, column, columnTo } = ordered(patch);
  const filters: Filters = {
    min_size: String(map.sizes[row] ?? 0),
    min_lifetime: `${map.lifetimes[column] ?? 0}ns`,
  };
  const sizeEnd = map.sizes[rowTo + 1];
  const lifetimeEnd = map.lifetimes[columnTo + 1];
  if (sizeEnd !== undefined) filters.max_size = String(sizeEnd - 1);
  if (lifetimeEnd !== undefined) filters.max_lifetime = `${lifetimeEnd - 1}ns`;
  return filters;
}

/** Sums over the patch. */
export function sumOf(map: HeatMap, patch: Patch): { count: number; bytes: number } {
  const { row, rowTo, column, columnTo } = ordered(patch);
  let count = 0;
  let bytes = 0;
  for (const r of range(row, rowTo)) {
    for (const c of range(column, columnTo)) {
      count += map.counts[r]?.[c] ?? 0;
      bytes += map.bytes[r]?.[c] ?? 0;
    }
  }
  return { count, bytes };
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}

function min(values: readonly number[]): number {
  return values.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
}

function max(values: readonly number[]): number {
  return values.reduce((a, b) => Math.max(a, b), 0);
}
