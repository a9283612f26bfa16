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

const BETWEEN_TWO = ["peak", "live", "leaked", "allocated", "temporary"] as const;

/**
 * What two recordings are compared by. Of programs that have ended, what is live is what they leaked: the peak is the
 * better first question.
 */
export function metricOfTwo(
  { metric, at }: Pick<PageSearch, "metric" | "at">,
  isRunning: boolean,
): (typeof BETWEEN_TWO)[number] {
  const usual = at === undefined && !isRunning ? "peak" : "live";
  return BETWEEN_TWO.find((known) => known === metric) ?? usual;
}
