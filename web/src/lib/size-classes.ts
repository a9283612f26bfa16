// Sizes by powers of two, as allocators group them: what a histogram holds of each, and the filter that means one.
import type { Histogram } from "../api/types.ts";
import type { Filters } from "./search-params.ts";

export interface SizeClass {
  /** Smallest and largest size, both included. */
  from: number;
  to: number;
  count: number;
  bytes: number;
}

/** The classes with a block, smallest first; the histogram's own are finer. */
export function sizeClasses({ lower, count, bytes }: Pick<Histogram, "lower" | "count" | "bytes">): SizeClass[] {
  const classes: SizeClass[] = [];
  lower.forEach((size, i) => {
    if ((count[i] ?? 0) === 0) return;
    const from = size < 1 ? 0 : 2 ** Math.floor(Math.log2(size));
    const last = classes.at(-1);
    if (last?.from === from) {
      last.count += count[i] ?? 0;
      last.bytes += bytes[i] ?? 0;
    } else {
      classes.push({ from, to: Math.max(0, 2 * from - 1), count: count[i] ?? 0, bytes: bytes[i] ?? 0 });
    }
  });
  return classes;
}

/** Whether the filters mean this class and no other. */
export function isOnly({ from, to }: SizeClass, filters: Filters | undefined): boolean {
  return filters?.min_size === String(from) && filters.max_size === String(to);
}

/** The filters with this class alone; without one if it was chosen already. */
export function chosenClass(known: SizeClass, filters: Filters | undefined): Filters | undefined {
  const { min_size: _, max_size: __, ...others } = filters ?? {};
  if (!isOnly(known, filters)) return { ...others, min_size: String(known.from), max_size: String(known.to) };
  return Object.keys(others).length > 0 ? others : undefined;
}
