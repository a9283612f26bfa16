// Frees by allocating and freeing thread, as a square matrix; the busiest threads if there are many.
import type { Threads } from "../../api/types.ts";

export interface Matrix {
  ids: number[];
  names: string[];
  /** `cells[allocated by][freed by]` */
  cells: number[][];
  largest: number;
  total: number;
  /** Freed by another thread than the one that allocated; of all threads. */
  across: number;
  leftOut: number;
}

export function buildMatrix(threads: Threads, unit: "bytes" | "count", limit = 16): Matrix {
  const weight = new Map<number, number>();
  let total = 0;
  let across = 0;
  for (const pair of threads.pairs) {
    const value = pair.amount[unit];
    total += value;
    if (pair.allocated_by !== pair.freed_by) across += value;
    weight.set(pair.allocated_by, (weight.get(pair.allocated_by) ?? 0) + value);
    weight.set(pair.freed_by, (weight.get(pair.freed_by) ?? 0) + value);
  }
  const busy = [...weight].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  const ids = busy.slice(0, limit).map(([id]) => id);
  const place = new Map(ids.map((id, i) => [id, i]));
  const cells = ids.map(() => ids.map(() => 0));
  let largest = 0;
  for (const pair of threads.pairs) {
    const row = cells[place.get(pair.allocated_by) ?? -1];
    const column = place.get(pair.freed_by);
    if (!row || column === undefined) continue;
    row[column] = (row[column] ?? 0) + pair.amount[unit];
    largest = Math.max(largest, row[column] ?? 0);
  }
  const nameOf = (id: number) => threads.threads.find((thread) => thread.id === id)?.name || `thread ${id}`;
  const all = threads.threads.map((thread) => thread.name);
  // Threads that were never renamed share the program's name.
  const names = ids.map((id) =>
    all.filter((name) => name === nameOf(id)).length > 1 ? `${nameOf(id)} ${id}` : nameOf(id),
  );
  return { ids, names, cells, largest, total, across, leftOut: busy.length - ids.length };
}
