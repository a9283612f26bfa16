// The exact values under the pointer, in one place, so that nothing covers the time series.
import type { Timeline } from "../../api/types.ts";
import { formatBytes, formatCount, formatInstant, formatRate } from "../../lib/format.ts";
import { columnAt, findSeries } from "./layout.ts";

export function Readout({
  timeline,
  peak,
  at,
  step,
}: {
  timeline: Timeline | undefined;
  peak: Timeline["peak"] | undefined;
  at: number | undefined;
  step: number;
}) {
  if (!timeline || !peak || timeline.t_ns.length === 0) return <output className="readout" />;
  if (at === undefined) {
    return (
      <output className="readout">
        <Value
          label={timeline.peak_of === "filter" ? "peak of the filter" : "peak"}
          value={formatBytes(peak.bytes)}
          title={`${formatCount(peak.bytes)} bytes`}
        />
        {peak.count > 0 && <Value label="at" value={formatInstant(peak.at_ns, step)} />}
        <Value label="blocks" value={formatCount(peak.count)} />
      </output>
    );
  }
  const column = columnAt(timeline, at);
  const value = (
    name: "live_bytes" | "live_count" | "occupied_bytes" | "rss" | "rss_program" | "alloc_rate" | "free_rate",
    field: "last" | "max" | "min",
  ) => findSeries(timeline, name)?.[field][column];
  const live = value("live_bytes", "last");
  const blocks = value("live_count", "last");
  const occupied = value("occupied_bytes", "last");
  const rss = value("rss_program", "last") ?? value("rss", "last");
  const allocs = value("alloc_rate", "last");
  const frees = value("free_rate", "last");
  return (
    <output className="readout">
      <Value label="t" value={formatInstant(at, step)} />
      {live != null && <Value label="live" value={formatBytes(live)} title={`${formatCount(live)} bytes`} />}
      {blocks != null && <Value label="blocks" value={formatCount(blocks)} />}
      {occupied != null && <Value label="pages with live blocks" value={formatBytes(occupied)} />}
      {rss != null && <Value label="RSS" value={formatBytes(rss)} />}
      {allocs != null && <Value label="allocations" value={formatRate(allocs)} />}
      {frees != null && <Value label="frees" value={formatRate(frees)} />}
    </output>
  );
}

function Value({ label, value, title }: { label: string; value: string; title?: string }) {
  return (
    <span title={title}>
      <span className="muted">{label}</span> {value}
    </span>
  );
}
