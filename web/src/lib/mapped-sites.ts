// Address space that was mapped piece by piece and never unmapped.
import type { MappedSite } from "../api/types.ts";

/** Bytes and pieces of all of them. */
export function sumOfMapped(sites: readonly MappedSite[]): { bytes: number; count: number } {
  const sum = (of: (site: MappedSite) => number) => sites.reduce((sum, site) => sum + of(site), 0);
  return { bytes: sum((site) => site.bytes), count: sum((site) => site.count) };
}
