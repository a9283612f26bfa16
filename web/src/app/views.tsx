// Which component answers which address, and what its tab says.
import { type ComponentType, lazy } from "react";
import { OverviewView } from "../features/overview/overview-view.tsx";
import type { View } from "../lib/search-params.ts";
import { Empty } from "../ui/states.tsx";

type Load = () => Promise<{ default: ComponentType }>;

const waiting: Load[] = [];

/** A view whose code is loaded when the view is shown, or when the page is idle. */
function later(load: Load): ComponentType {
  const careful: Load = () => load().catch(() => ({ default: NotLoaded }));
  waiting.push(load);
  return lazy(careful);
}

/** Loads the code of the other views, so that they work when the server is gone. */
export function loadOtherViews(): void {
  for (const load of waiting.splice(0)) void load().catch(() => undefined);
}

function NotLoaded() {
  return (
    <Empty title="This view could not be loaded">
      <p>The server does not answer, or it has another version now. Reload the page.</p>
    </Empty>
  );
}

export const VIEW_OF: Record<View, ComponentType> = {
  overview: OverviewView,
  flamegraph: later(async () => ({
    default: (await import("../features/flamegraph/flamegraph-view.tsx")).FlamegraphView,
  })),
  calltree: later(async () => ({ default: (await import("../features/calltree/calltree-view.tsx")).CallTreeView })),
  functions: later(async () => ({ default: (await import("../features/functions/functions-view.tsx")).FunctionsView })),
  sites: later(async () => ({ default: (await import("../features/sites/sites-view.tsx")).SitesView })),
  leaks: later(async () => ({ default: (await import("../features/leaks/leaks-view.tsx")).LeaksView })),
  lifetimes: later(async () => ({ default: (await import("../features/lifetimes/lifetimes-view.tsx")).LifetimesView })),
  allocations: later(async () => ({
    default: (await import("../features/allocations/allocations-view.tsx")).AllocationsView,
  })),
  threads: later(async () => ({ default: (await import("../features/threads/threads-view.tsx")).ThreadsView })),
  compare: later(async () => ({ default: (await import("../features/compare/compare-view.tsx")).CompareView })),
  memory: later(async () => ({ default: (await import("../features/memory/memory-view.tsx")).MemoryView })),
  pins: later(async () => ({ default: (await import("../features/pins/pins-view.tsx")).PinsView })),
  map: later(async () => ({ default: (await import("../features/map/map-view.tsx")).MapView })),
  churn: later(async () => ({ default: (await import("../features/churn/churn-view.tsx")).ChurnView })),
  sql: later(async () => ({ default: (await import("../features/sql/sql-view.tsx")).SqlView })),
  recording: later(async () => ({ default: (await import("../features/recording/recording-view.tsx")).RecordingView })),
  source: later(async () => ({ default: (await import("../features/source/source-view.tsx")).SourceView })),
};

/** Views that ask about single blocks, other instants or files: only a server can answer. */
export const NOT_IN_REPORTS: ReadonlySet<View> = new Set(["allocations", "churn", "compare", "map", "source", "sql"]);

interface ViewText {
  label: string;
  hint: string;
  /** Key that opens the view, after `g`. */
  key: string;
  /** Shows the choice of metric and unit. */
  metric?: true;
  /** Shows the search field; `asks`: only a server can answer the search. */
  search?: true | "asks";
  /** The view is of the whole process: filters of blocks have no effect. */
  unfiltered?: true;
}

export const VIEW_TEXT: Record<View, ViewText> = {
  overview: { label: "Overview", key: "o", hint: "Key figures and findings", search: true },
  flamegraph: {
    label: "Flame graph",
    key: "f",
    hint: "Allocating backtraces; width is bytes or blocks",
    metric: true,
    search: true,
  },
  calltree: { label: "Call tree", key: "c", hint: "The same tree, line by line", metric: true, search: true },
  functions: {
    label: "Functions",
    key: "u",
    hint: "Flat and cumulative sums, as in pprof",
    metric: true,
    search: true,
  },
  sites: { label: "Sites", key: "s", hint: "One row for each allocating backtrace", search: true },
  leaks: { label: "Leaks", key: "l", hint: "What was never freed, with a verdict", search: true },
  lifetimes: { label: "Lifetimes", key: "i", hint: "How long blocks live, against their size", search: "asks" },
  allocations: {
    label: "Allocations",
    key: "a",
    hint: "Every block, with its allocation and its free",
    search: "asks",
  },
  threads: { label: "Threads", key: "t", hint: "Allocations by thread, and frees across threads", search: true },
  compare: { label: "Compare", key: "d", hint: "What changed between two instants or two recordings", search: true },
  memory: {
    label: "Memory",
    key: "m",
    hint: "Parts of resident memory, at an instant and over time",
    search: true,
    unfiltered: true,
  },
  pins: {
    label: "Pins",
    key: "p",
    hint: "Code whose blocks hold pages that could be given back",
    search: true,
    unfiltered: true,
  },
  map: {
    label: "Heap map",
    key: "h",
    hint: "Addresses against time: occupied by which site, and resident",
    search: true,
  },
  churn: { label: "Churn", key: "n", hint: "Allocation rates by function, and bytes that reallocs move", search: true },
  sql: {
    label: "SQL",
    key: "q",
    hint: "Queries over tables of blocks, sites, backtraces and more",
    search: true,
    unfiltered: true,
  },
  recording: {
    label: "Recording",
    key: "r",
    hint: "Process, modules, quality and cost of the recording",
    search: true,
    unfiltered: true,
  },
  source: {
    label: "Source",
    key: "e",
    hint: "A source file with bytes or blocks for each line",
    metric: true,
    search: true,
  },
};
