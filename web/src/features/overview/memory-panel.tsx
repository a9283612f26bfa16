// Where resident memory is: its parts at one moment, and heap against RSS over time.
import { useQuery } from "@tanstack/react-query";
import { useMemo, useRef } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Info, Memory, Timeline } from "../../api/types.ts";
import { formatBytes, formatExact, formatInstant, formatPercent } from "../../lib/format.ts";
import { shortName } from "../../lib/names.ts";
import { effectiveWindow } from "../../lib/search-params.ts";
import { usePage } from "../../ui/page.ts";
import { Term } from "../../ui/term.tsx";
import { type Curve, TimeChart } from "../../ui/time-chart.tsx";
import { useWidth } from "../../ui/use-size.ts";
import { mappedBy, memoryParts } from "./memory-parts.ts";

/** Backtraces that are asked for, and functions that are shown. */
const MAPPERS = 300;
const MAPPED_BY = 4;

export function MemoryPanel({ info, wait }: { info: Info; wait: boolean }) {
  const { search, subject, report } = usePage();
  const window = effectiveWindow(search);
  const peak = info.peak_rss;
  const at = search.at ?? window?.to ?? peak?.at_ns ?? 0;
  const enabled = !!peak && !wait;
  // A report has one moment.
  const asked = report ? {} : { at, limit: MAPPERS };
  const memory = useQuery({ ...documentQuery(subject, "memory", asked), enabled });
  const timeline = useQuery({
    ...documentQuery(subject, "timeline", { ...window, series: "live_bytes,rss,rss_anonymous", points: 300 }),
    enabled,
  });
  if (!peak) return null;
  const when =
    report && memory.data && memory.data.at_ns !== peak.at_ns
      ? "at the end of the report's window"
      : search.at !== undefined
        ? "at the chosen instant"
        : window
          ? "at the end of the window"
          : "when RSS was highest";
  return (
    <section aria-labelledby="resident" data-panel="memory">
      <h2 id="resident">
        Where resident memory is{" "}
        <span className="muted">
          {when}, {formatInstant(report ? (memory.data?.at_ns ?? at) : at)}
        </span>
      </h2>
      {memory.error ? (
        <p className="muted">Not known: {memory.error.message}</p>
      ) : memory.data ? (
        <>
          <Parts memory={memory.data} />
          <Mapped memory={memory.data} />
        </>
      ) : (
        <p className="muted">Looking at the pages…</p>
      )}
      {timeline.data && <Curves timeline={timeline.data} />}
    </section>
  );
}

function Parts({ memory }: { memory: Memory }) {
  const parts = useMemo(() => memoryParts(memory), [memory]);
  if (!parts || !memory.sample) return <p className="muted">Memory was not sampled before this moment.</p>;
  const rss = Math.max(1, memory.sample.rss_bytes);
  return (
    <>
      <div className="memory-bar" aria-hidden="true">
        {parts.map((part) => (
          <i
            key={part.id}
            title={`${part.label}: ${formatBytes(part.drawn)}`}
            style={{ width: `${(100 * part.drawn) / rss}%`, background: `var(${part.color})` }}
          />
        ))}
      </div>
      <table className="small-table memory-parts">
        <tbody>
          {parts.map((part) => (
            <tr key={part.id} data-part={part.id}>
              <td>
                <i style={{ background: `var(${part.color})` }} />{" "}
                <Term definition={part.definition}>{part.label}</Term>
              </td>
              <td className="numeric" title={formatExact(part.bytes, "bytes")}>
                {formatBytes(part.bytes)}
              </td>
              <td className="numeric">{formatPercent(part.bytes / rss)}</td>
            </tr>
          ))}
          <tr data-part="rss">
            <td>
              <Term definition="What the kernel said the process held in memory: the sample at or before this moment.">
                Resident (RSS)
              </Term>
            </td>
            <td className="numeric" title={formatExact(memory.sample.rss_bytes, "bytes")}>
              <b>{formatBytes(memory.sample.rss_bytes)}</b>
            </td>
            <td className="numeric">{(memory.sample.rss_bytes / Math.max(1, memory.live.bytes)).toFixed(1)} × live</td>
          </tr>
        </tbody>
      </table>
      {memory.look_ns != null && <p className="muted">{memory.why}</p>}
    </>
  );
}

/** Beside `malloc`, programs map memory themselves: the most of it, and how much of that is live blocks. */
function Mapped({ memory }: { memory: Memory }) {
  const most = useMemo(() => mappedBy(memory).slice(0, MAPPED_BY), [memory]);
  if (most.length === 0) return null;
  return (
    <table className="small-table mapped-by">
      <thead>
        <tr>
          <th>
            <Term definition="Address space that was mapped and not yet unmapped: more than what is resident. By the innermost function that is of no standard library.">
              Mapped by
            </Term>
          </th>
          <th className="numeric">Mapped</th>
          <th className="numeric">Live blocks in it</th>
        </tr>
      </thead>
      <tbody>
        {most.map((by) => (
          <tr key={`${by.name} ${by.module}`}>
            <td>
              {by.name === undefined ? (
                <span className="muted">before recording began, and others</span>
              ) : (
                <>
                  <span className="mono">{shortName(by.name, 60)}</span> <span className="muted">{by.module}</span>
                </>
              )}
            </td>
            <td className="numeric" title={formatExact(by.mappedBytes, "bytes")}>
              {formatBytes(by.mappedBytes)}
            </td>
            <td className="numeric" title={formatExact(by.usedBytes, "bytes")}>
              {formatBytes(by.usedBytes)}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const CURVES = [
  { name: "rss", label: "RSS", color: "--rss" },
  { name: "rss_anonymous", label: "of it anonymous", color: "--allocated" },
  { name: "live_bytes", label: "live blocks", color: "--live" },
] as const;

function Curves({ timeline }: { timeline: Timeline }) {
  const host = useRef<HTMLDivElement>(null);
  const width = useWidth(host);
  const t = useMemo(() => [...timeline.t_ns, timeline.to_ns], [timeline]);
  const curves = useMemo(
    () =>
      CURVES.flatMap(({ name, color }): Curve[] => {
        const series = timeline.series.find((known) => known.name === name);
        return series ? [{ values: [...series.last, series.last.at(-1) ?? null], color, look: "layer" }] : [];
      }),
    [timeline],
  );
  return (
    <figure className="memory-curves">
      <figcaption className="muted">
        Over time:
        {CURVES.map(({ name, label, color }) => (
          <span key={name} className="legend">
            <i data-look="area" style={{ color: `var(${color})` }} />
            {label}
          </span>
        ))}
      </figcaption>
      <div ref={host}>
        <TimeChart
          t={t}
          curves={curves}
          shown={{ from: timeline.from_ns, to: timeline.to_ns }}
          width={width}
          height={120}
          unit="bytes"
          withTimeAxis
        />
      </div>
    </figure>
  );
}
