// Live bytes of both recordings that are compared, one above the other on the same scales.
import { useQuery } from "@tanstack/react-query";
import { type PointerEvent, useRef, useState } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { RecordingSummary, Timeline } from "../../api/types.ts";
import { formatBytes, formatInstant } from "../../lib/format.ts";
import { metricOfTwo } from "../../lib/moment.ts";
import { recordingText } from "../../lib/recording.ts";
import { usePage, useRequest } from "../../ui/page.ts";
import { AXIS_WIDTH, EDGE, TIME_AXIS_HEIGHT, TimeAxis, TimeChart } from "../../ui/time-chart.tsx";
import { useWidth } from "../../ui/use-size.ts";
import { largestOf, rangesOf } from "./both.ts";
import { Flag } from "./flag.tsx";
import { columnAt, findSeries, type Scale, stepTimes, stepValues, toInstant } from "./layout.ts";
import "./both.css";

const HEIGHT = 34;

interface Side {
  name: "before" | "after";
  recording: RecordingSummary;
  timeline: Timeline | undefined;
  error: Error | null;
}

/** The moment that is compared is marked on both sides. */
export function BothTimelines({ other }: { other: RecordingSummary }) {
  const { recording, subject, search, running, paused } = usePage();
  const metric = metricOfTwo(search, running || paused);
  const { filters } = useRequest();
  const host = useRef<HTMLDivElement>(null);
  const width = useWidth(host);
  const [hover, setHover] = useState<number | null>(null);
  const parameters = { ...filters, series: "live_bytes", points: Math.max(50, Math.floor(width / 100) * 50) };
  const own = useQuery({ ...documentQuery(subject, "timeline", parameters), enabled: width > 0 });
  const theirs = useQuery({
    ...documentQuery({ recording: other.id, revision: other.progress.events }, "timeline", parameters),
    enabled: width > 0,
  });
  const sides: Side[] = [
    { name: "before", recording, timeline: own.data, error: own.error },
    { name: "after", recording: other, timeline: theirs.data, error: theirs.error },
  ];
  const ranges = rangesOf(own.data?.to_ns, theirs.data?.to_ns);
  const largest = Math.max(largestOf(own.data), largestOf(theirs.data));
  const moment = ({ timeline }: Side): number | undefined => {
    if (!timeline) return undefined;
    if (metric === "peak") return timeline.peak.count > 0 ? timeline.peak.at_ns : undefined;
    return metric === "live" ? Math.min(search.at ?? timeline.to_ns, timeline.to_ns) : undefined;
  };
  return (
    <section className="both-timelines" aria-label="Live memory of both recordings">
      {sides.map((side, i) => {
        const shown = { from: 0, to: ranges.ends[i] ?? 1 };
        const scale: Scale = { shown, left: AXIS_WIDTH, width: Math.max(1, width - AXIS_WIDTH - EDGE) };
        const at = moment(side);
        const { timeline } = side;
        // The same moment on a common axis, the same part of the run on two.
        const pointed = hover === null ? undefined : toInstant(scale, hover);
        const isInside = pointed !== undefined && timeline && pointed <= timeline.to_ns;
        const withTimeAxis = !ranges.isCommon || i === 1;
        return (
          <div className="both-side" key={side.name} data-side={side.name}>
            <div className="both-name">
              <b>{side.name === "before" ? "Before" : "After"}</b>{" "}
              <span className="muted" title={`${side.recording.name} · ${recordingText(side.recording)}`}>
                {side.recording.name}
              </span>
              <output>
                {isInside
                  ? `${formatInstant(pointed)}: ${formatBytes(liveAt(timeline, pointed))}`
                  : timeline && `peak ${formatBytes(timeline.peak.bytes)}`}
              </output>
              {!ranges.isCommon && (
                <span className="muted" title="One ran more than four times as long as the other">
                  time axis of its own
                </span>
              )}
            </div>
            <div
              ref={i === 0 ? host : undefined}
              className="timeline-plot"
              onPointerMove={(event: PointerEvent<HTMLDivElement>) =>
                setHover(event.clientX - event.currentTarget.getBoundingClientRect().left)
              }
              onPointerLeave={() => setHover(null)}
            >
              {side.error && <p className="bad">Its timeline cannot be drawn: {side.error.message}</p>}
              <div style={{ minHeight: HEIGHT + (withTimeAxis ? TIME_AXIS_HEIGHT : 0) }}>
                {timeline && width > 0 && (
                  <>
                    <TimeChart
                      t={stepTimes(timeline)}
                      curves={[
                        {
                          values: stepValues(findSeries(timeline, "live_bytes")?.max ?? []),
                          color: side.name === "before" ? "--live" : "--layer-3",
                          look: "area",
                        },
                      ]}
                      shown={shown}
                      width={width}
                      height={HEIGHT}
                      unit="bytes"
                      withTimeAxis={false}
                      top={largest}
                    />
                    {withTimeAxis && <TimeAxis shown={shown} width={width} />}
                    {at !== undefined && <Flag scale={scale} t={at} kind="peak" text="" />}
                    {isInside && <Flag scale={scale} t={pointed} kind="hover" text="" />}
                  </>
                )}
              </div>
            </div>
          </div>
        );
      })}
    </section>
  );
}

function liveAt(timeline: Timeline, at: number): number {
  return findSeries(timeline, "live_bytes")?.max[columnAt(timeline, at)] ?? 0;
}
