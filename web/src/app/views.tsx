// Which component answers which address, and what its tab says.
import type { ComponentType } from "react";
import { AllocationsView } from "../features/allocations/allocations-view.tsx";
import { CallTreeView } from "../features/calltree/calltree-view.tsx";
import { CompareView } from "../features/compare/compare-view.tsx";
import { FlamegraphView } from "../features/flamegraph/flamegraph-view.tsx";
import { FunctionsView } from "../features/functions/functions-view.tsx";
import { LeaksView } from "../features/leaks/leaks-view.tsx";
import { LifetimesView } from "../features/lifetimes/lifetimes-view.tsx";
import { OverviewView } from "../features/overview/overview-view.tsx";
import { RecordingView } from "../features/recording/recording-view.tsx";
import { SitesView } from "../features/sites/sites-view.tsx";
import { SourceView } from "../features/source/source-view.tsx";
import { ThreadsView } from "../features/threads/threads-view.tsx";
import type { View } from "../lib/search-params.ts";

export const VIEW_OF: Record<View, ComponentType> = {
  overview: OverviewView,
  flamegraph: FlamegraphView,
  calltree: CallTreeView,
  functions: FunctionsView,
  sites: SitesView,
  leaks: LeaksView,
  lifetimes: LifetimesView,
  allocations: AllocationsView,
  threads: ThreadsView,
  compare: CompareView,
  recording: RecordingView,
  source: SourceView,
};

/** Views that ask about single blocks, other instants or files: only a server can answer. */
export const NOT_IN_REPORTS: ReadonlySet<View> = new Set(["allocations", "compare", "source"]);

interface ViewText {
  label: string;
  hint: string;
  /** Shows the choice of metric and unit. */
  metric?: true;
  /** Shows the search field. */
  search?: true;
}

export const VIEW_TEXT: Record<View, ViewText> = {
  overview: { label: "Overview", hint: "Key figures and findings" },
  flamegraph: {
    label: "Flame graph",
    hint: "Allocating backtraces; width is bytes or blocks",
    metric: true,
    search: true,
  },
  calltree: { label: "Call tree", hint: "The same tree, line by line", metric: true, search: true },
  functions: { label: "Functions", hint: "Flat and cumulative sums, as in pprof", metric: true, search: true },
  sites: { label: "Sites", hint: "One row for each allocating backtrace", search: true },
  leaks: { label: "Leaks", hint: "What was never freed, with a verdict", search: true },
  lifetimes: { label: "Lifetimes", hint: "How long blocks live, against their size" },
  allocations: { label: "Allocations", hint: "Every block, with its allocation and its free" },
  threads: { label: "Threads", hint: "Allocations by thread, and frees across threads" },
  compare: { label: "Compare", hint: "What changed between two instants or two recordings", search: true },
  recording: { label: "Recording", hint: "Process, modules, and the recorder about itself" },
  source: { label: "Source", hint: "A source file with bytes or blocks for each line", metric: true },
};
