// From the state of the page to the parameters of a request.
import type { Parameters } from "../api/client.ts";
import { faultOf } from "./filter-values.ts";
import { anyPattern, exactly, patternsOf, serverPattern, takesSeveral } from "./pattern.ts";
import { effectiveWindow, FILTERS, type Filters, type MetricName, type PageSearch } from "./search-params.ts";

/** What is measured: as chosen; else what is live at the chosen instant or now, and of what has ended its peak. */
export function effectiveMetric(search: PageSearch, running: boolean): MetricName {
  return search.metric ?? (running || search.at !== undefined ? "live" : "peak");
}

/** Which sites are added up apart: those that the page and its server were given, and what is built in. */
export function suppressionParameters(search: PageSearch): Parameters {
  return {
    builtin_suppressions: search.unsuppressed ? undefined : true,
    file_suppressions: search.unsuppressed ? false : undefined,
    suppress: search.suppress?.map(exactly).join("|"),
  };
}

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
    // A chip says what is wrong with it; a question with it would be refused as a whole.
    const usable = (takesSeveral(name) ? patternsOf(value) : [value]).filter((one) => faultOf(name, one) === undefined);
    const [first] = usable;
    if (first === undefined) continue;
    if (name === "focus") out[name] = usable.map(serverPattern).join("\n");
    else if (takesSeveral(name)) out[name] = anyPattern(usable);
    else out[name] = isPatternFilter(name) ? serverPattern(first) : first;
  }
  return out;
}

function isPatternFilter(name: string): boolean {
  return ["show_from", "module", "freed_by"].includes(name);
}

/** Metric, unit, and the window or instant that goes with them. */
export function metricParameters(search: PageSearch, until?: number, running = true): Parameters {
  const metric = effectiveMetric(search, running);
  const unit = search.unit ?? "bytes";
  if (metric === "live" && search.at !== undefined) return { metric, unit, at: search.at };
  return { metric, unit, ...windowParameters(search, until) };
}
