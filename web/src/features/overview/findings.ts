// What is worth reading first: at most five sentences, the heaviest first, each with its evidence.
import type {
  FunctionRow,
  Functions,
  Info,
  KeptReplay,
  LeakSite,
  Leaks,
  Memory,
  Pins,
  Threads,
} from "../../api/types.ts";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatInstant,
  formatPercent,
  formatShortCount,
  plural,
  sentence,
} from "../../lib/format.ts";
import { identityOf } from "../../lib/identity.ts";
import { sumOfMapped } from "../../lib/mapped-sites.ts";
import { bareName, placedName } from "../../lib/names.ts";
import { cutShortText } from "../../lib/recording.ts";
import { boundsOf, replayError, replayedName, smallerRow } from "../../lib/replay.ts";
import type { PageSearch, View } from "../../lib/search-params.ts";
import { allocatedBy, allocatorLabel } from "../../lib/stack.ts";
import { type Leaker, leakersOf } from "./leakers.ts";

export interface Finding {
  id: string;
  /** The number that it is about. */
  figure: string;
  title: string;
  text: string;
  /** The statistics behind it. */
  why?: string;
  /** Live bytes over the recording. */
  curve?: readonly number[];
  tone: "bad" | "warn" | "plain";
  view: View;
  search: Partial<PageSearch>;
}

export interface Evidence {
  info: Info;
  leaks: Leaks | undefined;
  /** The same of the function that grows fastest, by the thread that allocates. */
  growers?: Functions | undefined;
  peak: Functions | undefined;
  temporary: Functions | undefined;
  threads: Threads | undefined;
  /** Resident memory at the end, or now. */
  memory?: Memory | undefined;
  /** Whose blocks hold pages then. */
  pins?: Pins | undefined;
  /** What other allocators would have taken. */
  replay?: KeptReplay | undefined;
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
    freedLate(evidence),
    neverUnmapped(evidence),
    peak(evidence),
    temporary(evidence),
    crossing(evidence),
    returnable(evidence),
    pinned(evidence),
    resident(evidence),
    otherAllocator(evidence),
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
    figure: formatCount(missing),
    title: "Part of the recording is missing",
    text: `${plural(missing, "event")} and ${plural(info.exactness.damaged_blocks, "block")} of the file are known to be missing; sums may be too small and some frees unmatched.`,
    tone: "bad",
    view: "recording",
    search: {},
    weight: 10,
  };
}

/** A block at each step: what a program makes once for each kind of thing grows like this, and ends. */
const FEW_BLOCKS = 12;
/** The part of all leaked bytes from which a site is worth a word although it does not grow. */
const LARGE = 0.25;

/** Leftovers of the C library are no finding. */
function isMuch(bytes: number, info: Info): boolean {
  return bytes >= 4096 && bytes >= 0.001 * info.peak.bytes;
}

/** The growing function whose threads are queried. */
export function growingSubject(leaks: Leaks | undefined): string | undefined {
  const [first] = leaks ? leakersOf(leaks).filter(isGrowing) : [];
  return first?.search.selected;
}

const isFew = (leaker: Leaker) => leaker.verdict.shape === "stepwise" && leaker.count <= FEW_BLOCKS;
const isGrowing = (leaker: Leaker) => leaker.verdict.kind === "growing" && !isFew(leaker);

/** Names the thread that allocates nearly all of it, where there are other threads; else empty. */
function onlyThread({ growers, threads }: Evidence): string {
  const [first] = growers?.rows ?? [];
  if (!first || !growers || (threads?.threads.length ?? 0) < 2 || first.flat < 0.9 * growers.total) return "";
  return ` ${first.flat === growers.total ? "All" : "Nearly all"} of them by thread “${first.name}”.`;
}

function leaking(evidence: Evidence): Weighed[] {
  const { info, leaks } = evidence;
  if (!leaks || leaks.sites.length === 0) return [];
  const out: Weighed[] = [];
  const leakers = leakersOf(leaks);
  const part = (leaker: Leaker) => leaker.bytes / Math.max(1, leaks.leaked.bytes);
  const base = (leaker: Leaker) => ({
    ...(leaker.curve ? { curve: leaker.curve } : {}),
    why: sentence(leaker.verdict.why),
    view: "leaks" as const,
    search: leaker.search,
  });
  const amount = (leaker: Leaker) =>
    `${formatBytes(leaker.bytes)} in ${plural(leaker.count, "block")}${leaker.sites > 1 ? ` at ${plural(leaker.sites, "site")}` : ""}`;
  const growing = leakers.filter((leaker) => leaker.verdict.kind === "growing");
  for (const [at, leaker] of growing.filter(isGrowing).slice(0, 2).entries()) {
    out.push({
      ...base(leaker),
      id: `growing ${leaker.key}`,
      figure: `+${formatBytes(leaker.verdict.bytes_per_second)}/s`,
      title: `${leaker.name} keeps growing`,
      text: `${amount(leaker)} were never freed.${at === 0 ? onlyThread(evidence) : ""}`,
      tone: "bad",
      // A leak of a tenth of the peak comes before everything but losses, one of a thousandth after the peak.
      weight: 3 + 4 * Math.sqrt(Math.min(1, (10 * leaker.bytes) / Math.max(1, info.peak.bytes))),
    });
  }
  const [steps] = growing.filter((one) => isFew(one) && part(one) >= LARGE);
  if (steps) {
    out.push({
      ...base(steps),
      id: `steps ${steps.key}`,
      figure: formatBytes(steps.bytes),
      title: `${steps.name} rose in steps`,
      text: `${plural(steps.count, "block")}, allocated one by one: a rare event, or a slow leak.`,
      tone: "plain",
      weight: 1.8,
    });
  }
  const stopped = leakers.filter(
    (one) => one.verdict.never_freed && (part(one) >= LARGE || one.bytes >= 0.05 * info.peak.bytes),
  );
  const freed = cutShortText(info)
    ? info.end === "running"
      ? "freed so far"
      : "freed before the recording ended"
    : "ever freed";
  for (const leaker of stopped.slice(0, 2)) {
    out.push({
      ...base(leaker),
      id: `never freed ${leaker.key}`,
      figure: formatBytes(leaker.bytes),
      title: `${leaker.name}: none of ${plural(leaker.count, "block")} was ${freed}`,
      text: `The last${leaker.sites > 1 ? ` at its ${formatCount(leaker.sites)} sites` : ""} was allocated ${formatDuration(Math.max(0, info.process.duration_ns - leaker.lastNs))} before the end; nothing was given back.`,
      tone: "warn",
      weight: 2.6 + 2 * part(leaker),
    });
  }
  const [largest] = leakers;
  if (
    growing.length === 0 &&
    stopped.length === 0 &&
    largest &&
    part(largest) >= LARGE &&
    isMuch(leaks.leaked.bytes, info)
  ) {
    out.push({
      ...base(largest),
      id: "largest leak",
      figure: formatBytes(largest.bytes),
      title: `Largest never-freed: ${largest.name}`,
      text: `${formatPercent(part(largest))} of the ${formatBytes(leaks.leaked.bytes)} that were never freed.`,
      tone: leaks.leaked.bytes > 0.01 * info.peak.bytes ? "warn" : "plain",
      weight: 1.5 + (2 * leaks.leaked.bytes) / Math.max(1, info.peak.bytes),
    });
  }
  return out;
}

/** What grew until the program gave everything back at its end: no leak, but a cache or a list without a limit. */
function freedLate({ info, leaks }: Evidence): Weighed | undefined {
  const sums = new Map<string, { name: string; bytes: number; count: number; rate: number; first: LeakSite }>();
  for (const site of leaks?.freed_at_exit ?? []) {
    const name = allocatorLabel(site.stack, site.id);
    // Functions of one name in two files are two.
    const key = `${name} ${allocatedBy(site.stack).by?.file}`;
    const sum = sums.get(key) ?? { name, bytes: 0, count: 0, rate: 0, first: site };
    sum.bytes += site.bytes;
    sum.count += site.count;
    sum.rate += site.verdict.bytes_per_second;
    sums.set(key, sum);
  }
  const [largest] = [...sums.values()].sort((a, b) => b.bytes - a.bytes);
  if (!largest) return undefined;
  const { name, bytes, count, rate, first } = largest;
  if (!isMuch(bytes, info) || bytes < 0.05 * info.peak.bytes || count <= FEW_BLOCKS) return undefined;
  return {
    id: "freed at exit",
    figure: `+${formatBytes(rate)}/s`,
    title: `${name} keeps growing, and is freed only at exit`,
    text: `${formatBytes(bytes)} in ${plural(count, "block")} before the end: a cache or a list without a limit.`,
    why: sentence(first.verdict.why),
    tone: "warn",
    view: "sites",
    search: { site: first.id },
    weight: 3 + 2 * Math.sqrt(Math.min(1, bytes / Math.max(1, info.peak.bytes))),
  };
}

/** What was mapped again and again and never unmapped: beside the blocks, so that no leak's sum has it. */
function neverUnmapped({ info, leaks }: Evidence): Weighed | undefined {
  const sites = leaks?.still_mapped ?? [];
  const [largest] = sites;
  const sum = sumOfMapped(sites);
  if (!largest || sum.count <= FEW_BLOCKS || !isMuch(sum.bytes, info) || sum.bytes < 0.05 * info.peak.bytes) {
    return undefined;
  }
  const part = largest.bytes / sum.bytes;
  return {
    id: "never unmapped",
    figure: formatBytes(sum.bytes),
    title: `${allocatorLabel(largest.stack, "unknown")}: mapped and never unmapped`,
    text: `${plural(sum.count, "mapping")} beside the blocks${part < 1 ? `; ${formatPercent(part)} of the bytes are its own` : ""}. The last one was made at ${formatInstant(largest.last_ns)}.`,
    tone: "warn",
    view: "memory",
    search: {},
    weight: 3 + 2 * Math.sqrt(sum.bytes / Math.max(1, info.peak.bytes + sum.bytes)),
  };
}

function heaviest(functions: Functions | undefined): FunctionRow | undefined {
  return functions?.rows.find((row) => row.flat > 0);
}

function peak({ info, peak: functions }: Evidence): Weighed | undefined {
  const row = heaviest(functions);
  if (!row || !functions || functions.total <= 0) return undefined;
  return {
    id: "peak",
    figure: formatBytes(row.flat),
    title: `${placedName(bareName(row.name, 80), row.file)} held ${formatPercent(row.flat / functions.total)} of the peak`,
    text: `Of ${formatBytes(info.peak.bytes)} at ${formatInstant(info.peak.at_ns)}${row.flat < SMALL * functions.total ? ", more than any other function" : ""}.`,
    tone: "plain",
    view: "flamegraph",
    search: { metric: "peak", unit: undefined, selected: identityOf(row) },
    // Where no function of the program held more, what a library did is the last thing to ask about.
    weight: row.library ? 0.5 : 4,
  };
}

function temporary({ info, temporary: functions }: Evidence): Weighed | undefined {
  const row = heaviest(functions);
  const part = info.temporary.count / Math.max(1, info.allocations.count);
  if (!row || !functions || part < 0.1) return undefined;
  return {
    id: "temporary",
    figure: formatPercent(part),
    title: "of all allocations are temporary",
    text: `${placedName(bareName(row.name, 80), row.file)} makes ${formatShortCount(row.flat)} of the ${formatShortCount(functions.total)} (${formatPercent(row.flat / functions.total)})${row.flat < SMALL * functions.total ? "; no function makes more of them" : ". A buffer that it keeps and uses again would save them"}.`,
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
    figure: formatPercent(part),
    title: "of frees are of another thread's blocks",
    text: `${formatCount(across)} blocks were freed by a thread that had not allocated them. Most allocators take a slower path for these.`,
    tone: "plain",
    view: "threads",
    search: {},
    weight: 1 + 2 * part,
  };
}

/** The part of the run that a program may take to free everything before it ends. */
const EXIT = 0.05;

/** A moment before what a program does to end. */
export const lateMoment = (duration_ns: number): number => Math.round(duration_ns * (1 - EXIT));

/**
 * Whether the program gave back most of what it had while it ended. Then resident memory is judged before that: the end
 * would say that `malloc_trim` gives back what the kernel takes at once. Else the end says most about what stays.
 */
export const isTornDown = (late: Memory | undefined, leaked: number): boolean =>
  late !== undefined && late.live.bytes > 4 * leaked;

/** Resident memory that is worth a word. */
const MUCH = 8 * 1024 * 1024;

const sizeOf = (memory: Memory, key: string) => memory.rows?.find((row) => row.key === key)?.bytes ?? 0;

function returnable({ memory }: Evidence): Weighed | undefined {
  const trim = memory?.returnable_by_trim_bytes;
  if (!memory || trim == null) return undefined;
  const own = (memory.rss_bytes ?? 0) - sizeOf(memory, "recorder");
  if (trim < MUCH || trim < 0.15 * own) return undefined;
  return {
    id: "trim",
    figure: formatBytes(trim),
    title: "would come back with malloc_trim(0)",
    text: `${formatPercent(trim / own)} of resident memory without the recorder, at ${formatInstant(memory.look_ns ?? memory.at_ns)}.`,
    why: memory.why ?? "",
    tone: "warn",
    view: "memory",
    search: { at: memory.look_ns ?? memory.at_ns, window: undefined, metric: undefined },
    weight: 2.4 + (2 * trim) / Math.max(1, own),
  };
}

function pinned({ memory, pins }: Evidence): Weighed | undefined {
  const row = pins?.rows.find((one) => !one.library);
  if (!pins || !row) return undefined;
  const rss = memory?.rss_bytes ?? pins.pages.bytes;
  // What holds nearly all pages, such as main, says nothing; the server puts it behind those that allocate themselves.
  const general = row.pages > 0.9 * pins.pages.count && row !== pins.rows[0];
  if (general || row.given_back_bytes < 4 * 1024 * 1024 || row.given_back_bytes < 0.05 * rss) return undefined;
  return {
    id: "pins",
    figure: formatBytes(row.given_back_bytes),
    title: `pinned by ${bareName(row.function, 80)} (${formatBytes(row.own_bytes)})`,
    text: `${plural(row.blocks, "block")} hold ${plural(row.pages, "page")} that would be given back if these blocks were elsewhere.`,
    tone: "warn",
    view: "pins",
    search: { at: pins.look_ns ?? pins.at_ns, window: undefined, metric: undefined },
    weight: 2.3 + (2 * row.given_back_bytes) / Math.max(1, rss),
  };
}

function resident({ memory }: Evidence): Weighed | undefined {
  if (!memory?.rows) return undefined;
  const own = (memory.rss_bytes ?? 0) - sizeOf(memory, "recorder");
  const live = sizeOf(memory, "live") + sizeOf(memory, "rounding");
  const trim = memory.returnable_by_trim_bytes ?? 0;
  // What trim would give back is a finding by itself.
  const rest = own - live - trim;
  if (rest < MUCH || rest < live || rest < SMALL * own) return undefined;
  return {
    id: "resident",
    figure: formatBytes(own - live),
    title: "resident beyond live blocks",
    text: `Of ${formatBytes(own)} without the recorder, at ${formatInstant(memory.look_ns ?? memory.at_ns)}.`,
    why: memory.why ?? "",
    tone: "plain",
    view: "memory",
    search: { at: memory.look_ns ?? memory.at_ns, window: undefined, metric: undefined },
    weight: 1.5,
  };
}

/** Another allocator or setting that would hold a tenth less, as far as it was tried. */
function otherAllocator({ replay: kept }: Evidence): Weighed | undefined {
  if (!kept?.replay) return undefined;
  const row = smallerRow(kept);
  if (!row) return undefined;
  const { peak_bytes: recorded } = kept.replay.recorded;
  const { high } = boundsOf(row.peak_bytes);
  const saved = recorded - high;
  return {
    id: "replay",
    figure: formatBytes(high),
    title: `instead of ${formatBytes(recorded)} at the peak, by ${replayedName(row)}`,
    text: `Predicted by “heaptrace replay”; its error for the recording itself is ${replayError(kept) ?? "unknown"}. The Memory view has the command that proves it.`,
    tone: saved < MUCH ? "plain" : "warn",
    view: "memory",
    search: {},
    weight: (saved < MUCH ? 1 : 2.4) + (2 * saved) / Math.max(1, recorded),
  };
}
