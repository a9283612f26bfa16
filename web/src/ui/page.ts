// What every view knows about the page: the recording, the state in the URL, and how to change it.
import { createContext, useContext, useRef } from "react";
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
import type { Window } from "../lib/time.ts";

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
  /** Shows a window at once, in place of the address's, until the address changes. `held`: it is being dragged. */
  brush: (window: Window, held: boolean) => void;
  /** Changes part of the state; `undefined` removes. */
  go: (patch: Partial<PageSearch>, options?: GoOptions) => void;
}

/** The address that {@link Page.go} would lead to. */
export type Href = (patch: Partial<PageSearch>, options?: Omit<GoOptions, "replace">) => string;

export const PageContext = createContext<Page | null>(null);
/** The page without the view's own place in its state: it stays the same when somebody goes from frame to frame. */
export const FrameContext = createContext<Page | null>(null);
/**
 * Which of the two {@link usePage} returns. React draws everything anew that reads a context which changes somewhere
 * above, also where a provider in between has another value: so what does not depend on the place reads another context.
 */
export const PageSource = createContext(PageContext);
/** Apart from the page: it changes with every part of the address, and few have links. */
export const HrefContext = createContext<Href>(() => "#");

/** Where a view is in itself: the frame around the views does not depend on it. */
const PLACE_IN_VIEW = ["root", "open", "row"] as const satisfies readonly (keyof PageSearch)[];

/** The state without a view's own place; the same object for as long as nothing else changes. */
export function useFrameSearch(search: PageSearch): PageSearch {
  const kept = useRef<PageSearch>(search);
  const next = { ...search };
  for (const key of PLACE_IN_VIEW) delete next[key];
  if (!sameParts(kept.current, next)) kept.current = next;
  return kept.current;
}

function sameParts(a: PageSearch, b: PageSearch): boolean {
  const keys = new Set([...Object.keys(a), ...Object.keys(b)]) as Set<keyof PageSearch>;
  return [...keys].every((key) => a[key] === b[key]);
}

export function usePage(): Page {
  const page = useContext(useContext(PageSource));
  if (!page) throw new Error("usePage outside of a page");
  return page;
}

export function useHref(): Href {
  return useContext(HrefContext);
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
