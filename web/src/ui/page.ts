// What every view knows about the page: the recording, the state in the URL, and how to change it.
import { createContext, useContext } from "react";
import type { Parameters } from "../api/client.ts";
import type { Subject } from "../api/queries.ts";
import type { Report } from "../api/report.ts";
import type { Info, Live, RecordingSummary } from "../api/types.ts";
import {
  effectiveMetric,
  filterParameters,
  metricParameters,
  suppressionParameters,
  windowParameters,
} from "../lib/request.ts";
import type { MetricName, PageSearch, View } from "../lib/search-params.ts";

export interface GoOptions {
  /** No new entry in the browser's history. */
  replace?: boolean;
  view?: View;
  recording?: string;
}

export interface Page {
  recording: RecordingSummary;
  recordings: RecordingSummary[];
  view: View;
  search: PageSearch;
  subject: Subject;
  /** Missing until the first answer. */
  info: Info | undefined;
  live: Live | undefined;
  /** Length of the recording, as far as the page shows it. */
  endNs: number;
  running: boolean;
  paused: boolean;
  setPaused: (paused: boolean) => void;
  /** The report that this page is: its window and filter cannot be changed. */
  report: Report | undefined;
  /** The window is being dragged: a quick, coarse answer is better than a late, fine one. */
  brushing: boolean;
  setBrushing: (brushing: boolean) => void;
  /** Changes part of the state; `undefined` removes. */
  go: (patch: Partial<PageSearch>, options?: GoOptions) => void;
  /** The address that {@link go} would lead to. */
  href: (patch: Partial<PageSearch>, options?: Omit<GoOptions, "replace">) => string;
}

export const PageContext = createContext<Page | null>(null);

export function usePage(): Page {
  const page = useContext(PageContext);
  if (!page) throw new Error("usePage outside of a page");
  return page;
}

/** What is measured, chosen or not. */
export function useMetric(): MetricName {
  const { search, running, paused } = usePage();
  return effectiveMetric(search, running || paused);
}

/** Parameters of the usual kinds of request, for the page's state. */
export function useRequest(): {
  window: Parameters;
  metric: Parameters;
  filters: Parameters;
  suppressions: Parameters;
} {
  const { search, running, paused, endNs } = usePage();
  const until = paused ? endNs : undefined;
  return {
    window: windowParameters(search, until),
    metric: metricParameters(search, until, running || paused),
    filters: filterParameters(search.filters),
    suppressions: suppressionParameters(search),
  };
}
