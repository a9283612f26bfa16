// Which time series are drawn in which track.
import type { Thread, Timeline } from "../../api/types.ts";
import { shortName } from "../../lib/names.ts";
import type { Curve } from "../../ui/time-chart.tsx";
import { findSeries, stepTimes, stepValues } from "./layout.ts";

export interface Track {
  id: string;
  name: string;
  unit: "bytes" | "count" | "rate";
  height: number;
  t: number[];
  curves: Curve[];
  legend: { label: string; color: string; look: Curve["look"] }[];
}

/** A track a kind of quantity; a curve without any sample is left out, with its legend. */
export function buildTracks(
  timeline: Timeline,
  roomPx: number,
  threads: readonly Thread[] = [],
  /** The part of live memory that goes through the selected function. */
  part?: { name: string; timeline: Timeline },
): Track[] {
  // A tenth of the window for memory, half of that for what goes with it.
  const tall = Math.round(Math.max(76, Math.min(190, roomPx * 0.1)));
  const low = Math.round(Math.max(44, tall / 2));
  const t = stepTimes(timeline);
  const tracks: Track[] = [];
  const live = findSeries(timeline, "live_bytes");
  const rss = findSeries(timeline, "rss");
  const bytes: Track = { id: "bytes", name: "Memory", unit: "bytes", height: tall, t, curves: [], legend: [] };
  if (live) {
    bytes.curves.push({ values: stepValues(live.max), color: "--live", look: "area" });
    bytes.curves.push({ values: stepValues(live.min), color: "--live", look: "faint-area" });
    bytes.legend.push({ label: "live", color: "--live", look: "area" });
  }
  if (rss?.max.some((value) => value !== null)) {
    bytes.curves.push({ values: stepValues(rss.max), color: "--rss", look: "dashed" });
    bytes.legend.push({ label: "resident (RSS)", color: "--rss", look: "dashed" });
  }
  const through = part && findSeries(part.timeline, "live_bytes");
  // Both have the same columns, or the time series would lie: an answer for another window is on its way.
  if (part && through && part.timeline.t_ns.length === timeline.t_ns.length) {
    if (part.timeline.from_ns === timeline.from_ns && part.timeline.to_ns === timeline.to_ns) {
      bytes.curves.push({ values: stepValues(through.max), color: "--match", look: "line" });
      bytes.legend.push({ label: `through ${shortName(part.name, 48)}`, color: "--match", look: "line" });
    }
  }
  tracks.push(bytes);

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

  for (const series of timeline.series.filter((s) => s.name === "thread_rate")) {
    tracks.push({
      id: `thread ${series.thread ?? 0}`,
      name: `Thread ${series.thread ?? 0} ${threads.find((thread) => thread.id === series.thread)?.name ?? ""}`,
      unit: "rate",
      height: 30,
      t,
      curves: [{ values: stepValues(series.last), color: "--allocated", look: "area" }],
      legend: [],
    });
  }
  return tracks;
}
