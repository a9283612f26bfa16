// What is worth reading first: at most five sentences, the heaviest first, each with its evidence.
import type { FunctionRow, Functions, Info, Leaks, Threads } from "../../api/types.ts";
import {
  formatBytes,
  formatCount,
  formatInstant,
  formatPercent,
  formatShortCount,
  plural,
  sentence,
} from "../../lib/format.ts";
import { identityOf } from "../../lib/identity.ts";
import { shortName } from "../../lib/names.ts";
import type { PageSearch, View } from "../../lib/search-params.ts";
import { allocatorTitle } from "../../lib/stack.ts";

export interface Finding {
  id: string;
  title: string;
  text: string;
  tone: "bad" | "warn" | "plain";
  view: View;
  search: Partial<PageSearch>;
}

export interface Evidence {
  info: Info;
  leaks: Leaks | undefined;
  peak: Functions | undefined;
  temporary: Functions | undefined;
  threads: Threads | undefined;
}

/** A part that is not worth advice. */
const SMALL = 0.1;

interface Weighed extends Finding {
  weight: number;
}

export function findingsOf(evidence: Evidence, limit = 5): Finding[] {
  const found = [
    lost(evidence),
    ...leaking(evidence),
    peak(evidence),
    temporary(evidence),
    crossing(evidence),
    resident(evidence),
  ];
  return found
    .filter((finding) => finding !== undefined)
    .sort((a, b) => b.weight - a.weight)
    .slice(0, limit)
    .map(({ weight: _, ...finding }) => finding);
}

function lost({ info }: Evidence): Weighed | undefined {
  const missing = info.events.lost;
  if (missing === 0 && info.exactness.damaged_blocks === 0) return undefined;
  return {
    id: "lost",
    title: "Part of the recording is missing",
    text: `${plural(missing, "event")} and ${plural(info.exactness.damaged_blocks, "block")} of the file are known to be missing; sums may be too small and some frees unmatched.`,
    tone: "bad",
    view: "recording",
    search: {},
    weight: 10,
  };
}

function leaking({ info, leaks }: Evidence): Weighed[] {
  if (!leaks || leaks.sites.length === 0) return [];
  const out: Weighed[] = [];
  const growing = leaks.sites.filter((site) => site.verdict.kind === "growing");
  for (const site of growing.slice(0, 2)) {
    out.push({
      id: `growing ${site.id}`,
      title: `${shortName(allocatorTitle(site.stack, site.id), 80)} keeps growing`,
      text: `${formatBytes(site.bytes)} in ${plural(site.count, "block")} were never freed, ${formatBytes(site.verdict.bytes_per_second)} more every second. ${sentence(site.verdict.why)}`,
      tone: "bad",
      view: "leaks",
      search: { site: site.id },
      // A leak of a tenth of the peak comes before everything but losses, one of a thousandth after the peak.
      weight: 3 + 4 * Math.sqrt(Math.min(1, (10 * site.bytes) / Math.max(1, info.peak.bytes))),
    });
  }
  const [largest] = leaks.sites;
  if (growing.length === 0 && largest) {
    out.push({
      id: "largest leak",
      title: `Largest never-freed site: ${shortName(allocatorTitle(largest.stack, largest.id), 80)}`,
      text: `${formatBytes(largest.bytes)} of ${formatBytes(leaks.leaked.bytes)} (${formatPercent(largest.bytes / leaks.leaked.bytes)}). ${sentence(largest.verdict.why)}`,
      tone: "warn",
      view: "leaks",
      search: { site: largest.id },
      weight: 2 + (2 * leaks.leaked.bytes) / Math.max(1, info.peak.bytes),
    });
  }
  return out;
}

function heaviest(functions: Functions | undefined): FunctionRow | undefined {
  return functions?.rows.find((row) => row.flat > 0);
}

function peak({ info, peak: functions }: Evidence): Weighed | undefined {
  const row = heaviest(functions);
  if (!row || !functions || functions.total <= 0) return undefined;
  return {
    id: "peak",
    title: `The peak is ${formatBytes(info.peak.bytes)} at ${formatInstant(info.peak.at_ns)}`,
    text: `${shortName(row.name, 80)} held ${formatBytes(row.flat)} of it (${formatPercent(row.flat / functions.total)})${row.flat < SMALL * functions.total ? ", more than any other function" : ""}.`,
    tone: "plain",
    view: "flamegraph",
    search: { metric: "peak", unit: undefined, selected: identityOf(row) },
    weight: 4,
  };
}

function temporary({ info, temporary: functions }: Evidence): Weighed | undefined {
  const row = heaviest(functions);
  const part = info.temporary.count / Math.max(1, info.allocations.count);
  if (!row || !functions || part < 0.1) return undefined;
  return {
    id: "temporary",
    title: `${formatPercent(part)} of all allocations are temporary`,
    text: `${shortName(row.name, 80)} makes ${formatShortCount(row.flat)} of the ${formatShortCount(functions.total)} (${formatPercent(row.flat / functions.total)})${row.flat < SMALL * functions.total ? "; no function makes more of them" : ": a buffer that is kept would save them"}.`,
    tone: part > 0.5 ? "warn" : "plain",
    view: "flamegraph",
    search: { metric: "temporary", unit: "count", selected: identityOf(row) },
    weight: 1 + 3 * part,
  };
}

function crossing({ threads }: Evidence): Weighed | undefined {
  if (!threads || threads.threads.length < 2) return undefined;
  let total = 0;
  let across = 0;
  for (const pair of threads.pairs) {
    total += pair.amount.count;
    if (pair.allocated_by !== pair.freed_by) across += pair.amount.count;
  }
  const part = across / Math.max(1, total);
  if (part < 0.05) return undefined;
  return {
    id: "crossing",
    title: `${formatPercent(part)} of frees are of another thread's blocks`,
    text: `${formatCount(across)} blocks were freed by a thread that had not allocated them, which costs most allocators a lock.`,
    tone: "plain",
    view: "threads",
    search: {},
    weight: 1 + 2 * part,
  };
}

function resident({ info }: Evidence): Weighed | undefined {
  const rss = info.peak_rss;
  if (!rss) return undefined;
  const rest = rss.bytes - rss.recorder_bytes - info.peak.bytes;
  if (rest < info.peak.bytes || rest < 8 * 1024 * 1024) return undefined;
  return {
    id: "resident",
    title: `The process held ${formatBytes(rest)} beyond the heap's peak`,
    text: "Resident memory that no live block explains: code and mapped files, stacks, and pages that the allocator keeps or cannot give back. “Where resident memory is” on this page has the parts.",
    tone: "plain",
    view: "overview",
    search: { at: rss.at_ns, metric: undefined, window: undefined, zoom: undefined, shown: undefined },
    weight: 1.5,
  };
}
