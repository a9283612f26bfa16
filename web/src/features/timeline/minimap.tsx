// While the timeline shows a part: all of it, small, with the part as a frame that can be dragged.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type PointerEvent, useMemo, useRef } from "react";
import { documentQuery } from "../../api/queries.ts";
import { clampWindow, length, type Window } from "../../lib/time.ts";
import { usePage, useRequest } from "../../ui/page.ts";
import { AXIS_WIDTH, EDGE } from "../../ui/time-chart.tsx";
import { findSeries } from "./layout.ts";

const HEIGHT = 22;
const POINTS = 300;
/** A frame narrower than this could not be seen, nor held. */
const NARROWEST = 6;

export function Minimap({ whole, shown, width }: { whole: Window; shown: Window; width: number }) {
  const { subject, go, report } = usePage();
  const { filters } = useRequest();
  const drag = useRef<{ x: number; from: number } | null>(null);
  const room = Math.max(1, width - AXIS_WIDTH - EDGE);
  const query = useQuery({
    ...documentQuery(subject, "timeline", {
      ...(report ? {} : { from: whole.from, to: whole.to }),
      ...filters,
      series: "live_bytes",
      points: POINTS,
    }),
    placeholderData: keepPreviousData,
  });
  const path = useMemo(() => {
    const live = query.data && findSeries(query.data, "live_bytes");
    if (!query.data || !live) return "";
    const largest = Math.max(1, ...live.max.map((value) => value ?? 0));
    const x = (ns: number) => (((ns - whole.from) / length(whole)) * room).toFixed(1);
    const steps = live.max.map((value, i) => {
      const y = (HEIGHT - 1 - ((value ?? 0) / largest) * (HEIGHT - 3)).toFixed(1);
      return `V${y}H${x(query.data?.t_ns[i + 1] ?? whole.to)}`;
    });
    return `M0,${HEIGHT}${steps.join("")}V${HEIGHT}Z`;
  }, [query.data, whole, room]);

  const left = ((shown.from - whole.from) / length(whole)) * room;
  const span = Math.max(NARROWEST, (length(shown) / length(whole)) * room);
  const moved = (from: number): Window => {
    const start = Math.max(whole.from, Math.min(whole.to - length(shown), from));
    return clampWindow({ from: start, to: start + length(shown) }, whole.to);
  };
  const at = (event: PointerEvent<Element>) =>
    whole.from + ((event.clientX - event.currentTarget.getBoundingClientRect().left) / room) * length(whole);
  return (
    <svg
      className="minimap"
      width={room}
      height={HEIGHT}
      style={{ marginLeft: AXIS_WIDTH }}
      aria-hidden="true"
      onPointerDown={(event) => {
        if (event.button !== 0) return;
        const t = at(event);
        const inside = t >= shown.from && t <= shown.to;
        // Outside of the frame: it jumps there first.
        const start = inside ? shown : moved(t - length(shown) / 2);
        if (!inside) go({ shown: start }, { replace: true });
        drag.current = { x: event.clientX, from: start.from };
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={(event) => {
        const now = drag.current;
        if (now) go({ shown: moved(now.from + ((event.clientX - now.x) / room) * length(whole)) }, { replace: true });
      }}
      onPointerUp={() => {
        drag.current = null;
      }}
      onPointerCancel={() => {
        drag.current = null;
      }}
      onDoubleClick={() => go({ shown: undefined, zoom: undefined })}
    >
      <title>The whole recording: drag the frame to move what is shown</title>
      <path d={path} />
      <rect x={left} y="0.5" width={span} height={HEIGHT - 1} />
    </svg>
  );
}
