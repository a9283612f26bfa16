// Moments that questions are about.
import type { Info } from "../api/types.ts";
import { effectiveWindow, type PageSearch } from "./search-params.ts";

/** Whether a metric is about one moment, at which pages can be held. */
export function isOfMoment(metric: unknown): boolean {
  return metric === "live" || metric === "peak";
}

/**
 * Moment for queries about resident memory: the chosen instant, else the end of the window, else the newest moment of a
 * running program, or the highest resident set of one that has ended.
 */
export function memoryMoment(search: PageSearch, info: Info | undefined, running: boolean): number {
  const end = info?.process.duration_ns ?? 0;
  return search.at ?? effectiveWindow(search)?.to ?? (running ? end : (info?.peak_rss?.at_ns ?? end));
}
