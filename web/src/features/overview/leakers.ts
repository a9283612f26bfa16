// What leaks, for the findings: a row for each function, and one for sites that leak below a function that does not.
import type { Leaks, Verdict } from "../../api/types.ts";
import { identityOf } from "../../lib/identity.ts";
import { bareName, placedName } from "../../lib/names.ts";
import type { PageSearch } from "../../lib/search-params.ts";
import { allocatedBy, allocatorLabel, allocatorPlace, frameTitle } from "../../lib/stack.ts";

/** What leaks, as one row a function; a server without such rows has sites. */
export interface Leaker {
  key: string;
  /** As it is in a heading. */
  name: string;
  bytes: number;
  count: number;
  sites: number;
  verdict: Verdict;
  /** When the last block that is left was allocated. */
  lastNs: number;
  curve?: readonly number[];
  search: Partial<PageSearch>;
}

export function leakersOf(leaks: Leaks): Leaker[] {
  if (leaks.functions && leaks.functions.length > 0) {
    const functions = leaks.functions.map((row) => ({
      key: `${row.function} ${row.module} ${row.file}`,
      name: placedName(bareName(row.function, 80), row.file),
      bytes: row.bytes,
      count: row.count,
      sites: row.total_sites,
      verdict: row.verdict,
      lastNs: row.last_ns,
      curve: row.curve,
      search: { selected: identityOf({ name: row.function, module: row.module, file: row.file }), site: undefined },
    }));
    return [...functions, ...coveredSites(leaks)];
  }
  return leaks.sites.map((site) => ({
    key: site.id,
    name: allocatorLabel(site.stack, site.id),
    bytes: site.bytes,
    count: site.count,
    sites: 1,
    verdict: site.verdict,
    lastNs: site.last_ns,
    search: { site: site.id },
  }));
}

/** How bad a verdict is: it grows, it never frees, or neither. */
const degreeOf = (verdict: Verdict): number => (verdict.kind === "growing" ? 2 : verdict.never_freed ? 1 : 0);

/**
 * Sites that leak though all sites of their function, taken together, do not: a helper that allocates for several. What is
 * said of a function that leaks is said of its sites, too.
 */
function coveredSites(leaks: Leaks): Leaker[] {
  const degree = new Map<string, number>();
  for (const row of leaks.functions ?? []) for (const id of row.sites) degree.set(id, degreeOf(row.verdict));
  const found = new Map<string, Leaker>();
  for (const site of leaks.sites) {
    if (degreeOf(site.verdict) === 0 || (degree.get(site.id) ?? 2) > 0) continue;
    const { from } = allocatedBy(site.stack);
    const label = allocatorLabel(site.stack, site.id);
    const place = allocatorPlace(site.stack);
    const caller = from && placedName(bareName(frameTitle(from), 80), from.file);
    const name = caller ? `${caller} → ${label}` : place ? `${label} at ${place}` : label;
    const { bytes, count, verdict, last_ns: lastNs } = site;
    const key = `${degreeOf(verdict)} ${name}`;
    const known = found.get(key);
    if (!known) {
      found.set(key, { key: site.id, name, bytes, count, sites: 1, verdict, lastNs, search: { site: site.id } });
      continue;
    }
    // Several sites of one caller are one row, with the words of the largest.
    known.bytes += bytes;
    known.count += count;
    known.sites += 1;
    known.lastNs = Math.max(known.lastNs, lastNs);
    const rate = known.verdict.bytes_per_second + verdict.bytes_per_second;
    known.verdict = { ...known.verdict, bytes_per_second: rate };
  }
  return [...found.values()];
}
