// Moments that questions are about.
import type { Info } from "../api/types.ts";
import { effectiveWindow, type PageSearch } from "./search-params.ts";

/** Whether a metric is about one moment, at which pages can be held. */
export function isOfMoment(metric: unknown): boolean {
  return metric === "live" || metric === "peak";
}

/** Of questions about resident memory: the chosen instant, the end of the window, the highest moment of what has ended; of what runs its newest moment. */
export function memoryMoment(search: PageSearch, info: Info | undefined, running: boolean): number {
  const end = info?.process.duration_ns ?? 0;
  return search.at ?? effectiveWindow(search)?.to ?? (running ? end : (info?.peak_rss?.at_ns ?? end));
}
