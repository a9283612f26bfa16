// From the state of the page to the parameters of a request.
import type { Parameters } from "../api/client.ts";
import { serverPattern } from "./pattern.ts";
import { effectiveWindow, FILTERS, type Filters, type PageSearch } from "./search-params.ts";

/** `from` and `to`; none for the whole recording. `until` bounds a recording whose view is paused. */
export function windowParameters(search: PageSearch, until?: number): Parameters {
  const window = effectiveWindow(search);
  if (window) return { from: window.from, to: window.to };
  return until === undefined ? {} : { from: 0, to: until };
}

/** The filters as the server wants them. Patterns keep the rule that small letters match both. */
export function filterParameters(filters: Filters | undefined): Parameters {
  const out: Parameters = {};
  for (const name of FILTERS) {
    const value = filters?.[name];
    if (value === undefined) continue;
    out[name] = isPatternFilter(name) ? serverPattern(value) : value;
  }
  return out;
}

function isPatternFilter(name: string): boolean {
  return ["focus", "ignore", "hide", "show", "show_from", "module"].includes(name);
}

/** Metric, unit, and the window or instant that goes with them. */
export function metricParameters(search: PageSearch, until?: number): Parameters {
  const metric = search.metric ?? "live";
  const unit = search.unit ?? "bytes";
  if (metric === "live" && search.at !== undefined) return { metric, unit, at: search.at };
  return { metric, unit, ...windowParameters(search, until) };
}
