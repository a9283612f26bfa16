// Key figures, each with what it means.
import type { Amount, Info, Leaks } from "../../api/types.ts";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatInstant,
  formatPercent,
  formatRate,
  formatShortCount,
} from "../../lib/format.ts";
import { cutShortText } from "../../lib/recording.ts";
import type { PageSearch, View } from "../../lib/search-params.ts";

export interface Fact {
  id: string;
  label: string;
  value: string;
  /** The same with every digit. */
  exact: string;
  note?: string;
  definition: string;
  tone?: "bad" | "warn";
  /** Where the evidence is. */
  link?: { view: View; search: Partial<PageSearch> };
}

const WHOLE: Partial<PageSearch> = { window: undefined, zoom: undefined, shown: undefined, at: undefined };

export function factsOf(info: Info, leaks: Leaks | undefined, running: boolean): Fact[] {
  const cut = running ? undefined : cutShortText(info);
  const { process, allocations, temporary, peak, peak_rss: rss } = info;
  const seconds = process.duration_ns / 1e9;
  const facts: Fact[] = [
    {
      id: "runtime",
      label: "Runtime",
      value: formatDuration(process.duration_ns),
      exact: `${formatCount(process.duration_ns)} ns`,
      definition: "From the start of the recording to its end; of a running program, so far.",
    },
    {
      id: "allocations",
      label: "Allocations",
      value: formatShortCount(allocations.count),
      exact: `${formatCount(allocations.count)} blocks, ${formatCount(allocations.bytes)} bytes`,
      note: `${formatBytes(allocations.bytes)} in all`,
      definition:
        "Blocks allocated by malloc and related functions. A realloc that succeeded counts as one more allocation.",
      link: { view: "functions", search: { ...WHOLE, metric: "allocated", unit: "count" } },
    },
    {
      id: "rate",
      label: "Per second",
      value: seconds > 0 ? formatRate(allocations.count / seconds) : "–",
      exact: seconds > 0 ? `${formatCount(allocations.count / seconds)} allocations a second` : "no time has passed",
      definition: "Allocations divided by the runtime.",
    },
    {
      id: "temporary",
      label: "Temporary",
      value: formatPercent(allocations.count > 0 ? temporary.count / allocations.count : 0),
      exact: `${formatCount(temporary.count)} blocks, ${formatCount(temporary.bytes)} bytes`,
      note: `${formatShortCount(temporary.count)} blocks`,
      definition: `Part of all allocations that lived only for a moment. Rule: ${temporary.rule}. Work that could often be avoided.`,
      link: { view: "flamegraph", search: { ...WHOLE, metric: "temporary", unit: "count" } },
    },
    {
      id: "peak",
      label: "Peak heap",
      value: formatBytes(peak.bytes),
      exact: `${formatCount(peak.bytes)} bytes in ${formatCount(peak.count)} blocks`,
      note: `at ${formatInstant(peak.at_ns)}`,
      definition: "The largest sum of requested bytes that were live at one moment, exact to the event.",
      link: { view: "flamegraph", search: { ...WHOLE, metric: "peak", unit: undefined } },
    },
    {
      id: "rss",
      label: "Peak RSS",
      value: rss ? formatBytes(rss.bytes) : "–",
      exact: rss ? `${formatCount(rss.bytes)} bytes at ${formatInstant(rss.at_ns)}` : "memory was not sampled",
      ...(rss
        ? {
            note: `recorder ${formatBytes(rss.recorder_bytes)}`,
            link: { view: "memory" as const, search: { ...WHOLE, at: rss.at_ns, metric: undefined } },
          }
        : {}),
      definition:
        "The largest resident set that was seen: heap, stacks, code and mapped files in memory. It contains the recorder's own memory, which is named: the row of the ledger at that moment.",
    },
    {
      id: "leaked",
      label: running ? "Live now" : "Leaked",
      value: formatBytes(info.leaked.bytes),
      exact: `${formatCount(info.leaked.bytes)} bytes in ${formatCount(info.leaked.count)} blocks`,
      note: `${formatShortCount(info.leaked.count)} blocks${cut ? `, live ${cut}` : ""}`,
      definition: running
        ? "Requested bytes of blocks that are live at this moment."
        : "Requested bytes of blocks that were still live when the recording ended. Not every one is a bug: the Leaks view gives a verdict for every site.",
      ...(info.leaked.bytes > 0 && !running ? { tone: "warn" as const } : {}),
      link: { view: "leaks", search: WHOLE },
    },
    {
      id: "suppressed",
      label: "Suppressed",
      value: leaks ? formatBytes(leaks.suppressed.bytes) : "…",
      exact: leaks ? amountText(leaks.suppressed) : "",
      definition:
        "Leaked bytes of sites that a suppression names: what libc and libstdc++ keep by design, what the program names itself, and what you suppressed. The Leaks view leaves them out of its sum and lists them.",
    },
    {
      id: "threads",
      label: "Threads",
      value: formatCount(info.threads),
      exact: `${formatCount(info.threads)} threads`,
      definition: "Threads that made at least one event. The recorder's own are not counted.",
      link: { view: "threads", search: WHOLE },
    },
    {
      id: "sites",
      label: "Sites",
      value: formatShortCount(info.sites),
      exact: `${formatCount(info.sites)} sites, deepest backtrace ${formatCount(info.max_depth)} frames`,
      note: `up to ${formatCount(info.max_depth)} deep`,
      definition: "Distinct backtraces that allocated.",
      link: { view: "sites", search: WHOLE },
    },
  ];
  const lost = info.events.lost + info.exactness.damaged_blocks;
  if (lost > 0) {
    facts.push({
      id: "lost",
      label: "Missing",
      value: formatShortCount(info.events.lost),
      note: "events",
      exact: `${formatCount(info.events.lost)} events, ${formatCount(info.exactness.damaged_blocks)} damaged blocks`,
      definition: "Events known to be missing. All figures are computed from the rest.",
      tone: "bad",
      link: { view: "recording", search: {} },
    });
  }
  return facts;
}

function amountText(amount: Amount): string {
  return `${formatCount(amount.bytes)} bytes in ${formatCount(amount.count)} blocks`;
}
