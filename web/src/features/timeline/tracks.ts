// Which time series are drawn in which track.
import type { Thread, Timeline } from "../../api/types.ts";
import { bareName } from "../../lib/names.ts";
import type { Curve } from "../../ui/time-chart.tsx";
import { findSeries, stepTimes, stepValues } from "./layout.ts";

export interface Track {
  id: string;
  name: string;
  unit: "bytes" | "count" | "rate";
  height: number;
  t: number[];
  curves: Curve[];
  /** `hint`: what the label is short for. */
  legend: { label: string; hint?: string; color: string; look: Curve["look"] }[];
  /** In place of curves: rows of colours, one a thread. */
  heat?: HeatRow[];
}

export interface HeatRow {
  name: string;
  /** One a column of the timeline. */
  values: number[];
}

/** From so many threads on they share a track, a row of colours each. */
const MANY_THREADS = 8;

/** A track a kind of quantity, each with an axis of its own; a curve without any sample is left out, with its legend. */
export function buildTracks(
  timeline: Timeline,
  roomPx: number,
  threads: readonly Thread[] = [],
  /** The part of live memory that goes through the selected function. */
  part?: { name: string; timeline: Timeline },
): Track[] {
  // An eighteenth of the window for memory, half of that for what goes with it: what is below is what was asked for.
  const tall = Math.round(Math.max(50, Math.min(400, roomPx * 0.055)));
  const low = Math.round(Math.max(27, tall / 2));
  const t = stepTimes(timeline);
  const tracks: Track[] = [];
  const live = findSeries(timeline, "live_bytes");
  const bytes: Track = { id: "bytes", name: "Memory", unit: "bytes", height: tall, t, curves: [], legend: [] };
  if (live) {
    bytes.curves.push({ values: stepValues(live.max), color: "--live", look: "area" });
    bytes.curves.push({ values: stepValues(live.min), color: "--live", look: "faint-area" });
    bytes.legend.push({ label: "live", color: "--live", look: "area" });
  }
  const through = part && findSeries(part.timeline, "live_bytes");
  // Both have the same columns, or the time series would lie: an answer for another window is on its way.
  if (part && through && part.timeline.t_ns.length === timeline.t_ns.length) {
    if (part.timeline.from_ns === timeline.from_ns && part.timeline.to_ns === timeline.to_ns) {
      const label = `through ${bareName(part.name, 48)}`;
      const curve = { values: stepValues(through.max), color: "--match", look: "line" as const };
      bytes.curves.push(curve);
      bytes.legend.push({ label, color: "--match", look: "line" });
      // What is small beside everything is seen on an axis of its own.
      const largest = (values: readonly (number | null)[]) => Math.max(0, ...values.map((value) => value ?? 0));
      if (live && largest(through.max) < largest(live.max) / 4) {
        tracks.push({
          id: "selected",
          name: "Selected",
          unit: "bytes",
          height: low,
          t,
          curves: [{ ...curve, look: "area" }],
          legend: [],
        });
      }
    }
  }
  tracks.unshift(bytes);

  const rss = findSeries(timeline, "rss_program") ?? findSeries(timeline, "rss");
  if (rss?.max.some((value) => value !== null)) {
    // The line between live bytes and resident memory: the pages that live blocks need. Of the whole heap.
    const occupied = part ? undefined : findSeries(timeline, "occupied_bytes");
    tracks.push({
      id: "rss",
      name: "Resident",
      unit: "bytes",
      height: low,
      t,
      curves: [
        { values: stepValues(rss.max), color: "--rss", look: "area" },
        ...(occupied ? [{ values: stepValues(occupied.max), color: "--live", look: "line" as const }] : []),
      ],
      legend: [
        {
          ...(rss.name === "rss" ? { label: "RSS" } : { label: "program", hint: "RSS less the recorder's own memory" }),
          color: "--rss",
          look: "area",
        },
        ...(occupied
          ? [
              {
                label: "live pages",
                hint: "Pages that hold at least one live block",
                color: "--live",
                look: "line" as const,
              },
            ]
          : []),
      ],
    });
  }

  const count = findSeries(timeline, "live_count");
  if (count) {
    tracks.push({
      id: "count",
      name: "Blocks",
      unit: "count",
      height: low,
      t,
      curves: [{ values: stepValues(count.max), color: "--live", look: "area" }],
      legend: [],
    });
  }

  const rate: Track = { id: "rate", name: "Per second", unit: "rate", height: low, t, curves: [], legend: [] };
  const allocs = findSeries(timeline, "alloc_rate");
  const frees = findSeries(timeline, "free_rate");
  if (allocs) {
    rate.curves.push({ values: stepValues(allocs.last), color: "--allocated", look: "area" });
    rate.legend.push({ label: "allocations", color: "--allocated", look: "area" });
  }
  if (frees) {
    rate.curves.push({ values: stepValues(frees.last), color: "--freed", look: "line" });
    rate.legend.push({ label: "frees", color: "--freed", look: "line" });
  }
  if (rate.curves.length > 0) tracks.push(rate);

  const rates = timeline.series.filter((s) => s.name === "thread_rate");
  const nameOf = (id: number | null | undefined) =>
    `Thread ${id ?? 0} ${threads.find((thread) => thread.id === id)?.name ?? ""}`.trim();
  if (rates.length > MANY_THREADS) {
    const rowPx = rates.length > 80 ? 2 : rates.length > 24 ? 4 : 7;
    tracks.push({
      id: "threads",
      name: "Threads",
      unit: "rate",
      height: Math.min(220, rates.length * rowPx),
      t,
      curves: [],
      legend: [{ label: `${rates.length}, a row each`, color: "--allocated", look: "area" }],
      heat: rates.map((series) => ({ name: nameOf(series.thread), values: series.last.map((value) => value ?? 0) })),
    });
    return tracks;
  }
  for (const series of rates) {
    tracks.push({
      id: `thread ${series.thread ?? 0}`,
      name: nameOf(series.thread),
      unit: "rate",
      height: 30,
      t,
      curves: [{ values: stepValues(series.last), color: "--allocated", look: "area" }],
      legend: [],
    });
  }
  return tracks;
}
