// The order of a view's table: kept in the URL as `sort`, changed by the table's headers.
import { readKeys, type SortKey, writeKeys } from "../lib/sorting.ts";
import { usePage } from "./page.ts";

export interface Sorting {
  /** `server`: rows come sorted, only columns in `sortable` can be chosen. */
  by: "here" | "server";
  /** The columns that decide, the first before the others. */
  keys: readonly SortKey[];
  sortable?: readonly string[];
  onSort: (keys: SortKey[]) => void;
}

/** `otherwise`: the order that nobody has chosen. */
export function useSorting(otherwise: string | SortKey, sortable?: readonly string[]): Sorting {
  const { search, go } = usePage();
  const first = typeof otherwise === "string" ? { column: otherwise, reversed: false } : otherwise;
  return {
    by: sortable ? "server" : "here",
    keys: readKeys(search.sort, sortable, first),
    ...(sortable ? { sortable } : {}),
    onSort: (keys) => go({ sort: writeKeys(keys) }, { replace: true }),
  };
}
