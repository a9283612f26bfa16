// Words for what pinned pages are counted in.
import type { PinUnit } from "../api/types.ts";

/** What is counted, as a noun for `count` of them. */
export function pagesOf(unit: PinUnit | null | undefined, count = 2): string {
  const pages = count === 1 ? "page" : "pages";
  if (unit === "2M") return `huge ${pages}`;
  return unit === "slab" ? `${pages} of slabs` : pages;
}
