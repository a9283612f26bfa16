// Source files: what their functions allocate, and which of them a reader looks for.
import type { FunctionRow, Functions } from "../../api/types.ts";

/** What the server calls code whose file is not known. */
export const UNKNOWN = "(no source file)";

/** What the program's functions of each file allocate. */
export function flatByFile(functions: Functions | undefined): Map<string, number> {
  const sums = new Map<string, number>();
  for (const row of functions?.rows ?? []) {
    const file = row.file ?? UNKNOWN;
    sums.set(file, (sums.get(file) ?? 0) + row.flat);
  }
  return sums;
}

/** Headers and sources of the compiler, of its libraries and of the C library. */
const OF_SYSTEM = /^(\.{1,2}\/|\/usr\/(include|lib|src)\/|\/rustc\/|\/build\/)/;

/** Files that allocate first, the largest before the others; those of the system are last. */
export function inOrder(rows: readonly FunctionRow[], flat: ReadonlyMap<string, number>): FunctionRow[] {
  const isLast = (row: FunctionRow) => Number(!flat.get(row.name) && OF_SYSTEM.test(row.name));
  const size = (row: FunctionRow) => Math.abs(flat.get(row.name) ?? 0);
  return [...rows].sort(
    (a, b) =>
      isLast(a) - isLast(b) || size(b) - size(a) || Math.abs(b.cum) - Math.abs(a.cum) || (a.name < b.name ? -1 : 1),
  );
}
