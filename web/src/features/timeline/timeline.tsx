// The timeline over every view: tracks, the brush, committed windows, instants.

import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { type KeyboardEvent, type PointerEvent, type ReactNode, useMemo, useRef, useState } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Timeline as TimelineDocument } from "../../api/types.ts";
import { formatDuration, formatInstant, sentence } from "../../lib/format.ts";
import { nameIn, patternOf } from "../../lib/identity.ts";
import { FOLDS, type FoldName } from "../../lib/search-params.ts";
import { clampWindow, length, panWindow, type Window } from "../../lib/time.ts";
import { useKept } from "../../ui/kept.ts";
import { useNotes } from "../../ui/notes.ts";
import { usePage, useRequest } from "../../ui/page.ts";
import { AXIS_WIDTH, EDGE, TimeAxis, TimeChart } from "../../ui/time-chart.tsx";
import { useWidth, useWindowHeight } from "../../ui/use-size.ts";
import { Crumbs } from "./crumbs.tsx";
import { Flag } from "./flag.tsx";
import { useThrottled, useWheel } from "./gestures.ts";
import { Heat } from "./heat.tsx";
import { HeightGrip, readHeightFactor, writeHeightFactor } from "./height-grip.tsx";
import { gapsBetween, keyChange, resolution, roomsOf, type Scale, toInstant, toSpan, wheelChange } from "./layout.ts";
import { Minimap } from "./minimap.tsx";
import { Readout } from "./readout.tsx";
import { Shortcuts } from "./shortcuts.tsx";
import { buildTracks } from "./tracks.ts";
import "./timeline.css";

/** Pixels; what is narrower is the first and the last instant of a recording. */
const NARROWEST_GAP = 3;
/** Between two windows of one drag, where answers come faster. */
const BRUSH_MS = 50;

type Drag =
  | { kind: "brush"; anchor: number; moved: boolean; startX: number }
  | { kind: "pan"; startX: number; shown: Window }
  | { kind: "from" | "to"; other: number }
  | { kind: "a" | "b" };

/** `beside`: elements between the windows and the readout. */
export function Timeline({ beside }: { beside?: ReactNode }) {
  const page = usePage();
  const { search, endNs, go } = page;
  const { filters } = useRequest();
  const host = useRef<HTMLDivElement>(null);
  const surface = useRef<HTMLDivElement>(null);
  const clicked = useRef<(Pick<typeof search, "metric" | "at" | "window"> & { time: number }) | undefined>(undefined);
  const [heightFactor, setHeightFactor] = useState(readHeightFactor);
  const notes = useNotes(page.recording.name);
  const width = useWidth(host);
  const drag = useRef<Drag | null>(null);
  const [hover, setHover] = useState<number | null>(null);
  const [brush, setBrush] = useState<Window | null>(null);

  const committed = search.zoom?.at(-1);
  const { report } = page;
  const whole: Window = useMemo(
    () =>
      report
        ? { from: report.from_ns, to: Math.max(report.from_ns + 1, report.to_ns) }
        : { from: 0, to: Math.max(1, endNs) },
    [endNs, report],
  );
  const shown = search.shown ?? committed ?? whole;
  const scale: Scale = { shown, left: AXIS_WIDTH, width: Math.max(1, width - AXIS_WIDTH - EDGE) };
  const followsEnd = search.shown === undefined && committed === undefined;

  const folded = search.folded ?? [];
  const series = ["live_bytes", "occupied_bytes", "rss_program", "alloc_rate", "free_rate"];
  if (search.tracks?.includes("count")) series.push("live_count");
  if (search.tracks?.includes("threads")) series.push("thread_rate");
  const query = useKept(
    useQuery({
      ...documentQuery(page.subject, "timeline", {
        ...(followsEnd && !page.paused ? {} : { from: shown.from, to: shown.to }),
        ...filters,
        series: series.join(","),
        // A column every other pixel: rates of single pixels are noise.
        points: Math.max(50, Math.min(2000, Math.floor(scale.width / 100) * 50)),
      }),
      placeholderData: keepPreviousData,
      enabled: width > 0,
    }),
  );
  // The peak of the chosen window, exact, while the time series may show more than it.
  const windowed = useQuery({
    ...documentQuery(page.subject, "timeline", { ...search.window, ...filters, series: "live_bytes", points: 1 }),
    enabled: search.window !== undefined,
  });
  // Of a running program the newest figure, which the tiles of the overview have, too.
  const newest =
    page.running && !search.window && length(shown) >= length(whole) && query.data?.peak_of !== "filter"
      ? page.info?.peak
      : undefined;
  const peak = (search.window && windowed.data?.peak) ?? newest ?? query.data?.peak;
  const room = useWindowHeight();
  const threads = useQuery({
    ...documentQuery(page.subject, "threads"),
    enabled: search.tracks?.includes("threads") ?? false,
  });
  // The selected function's part of the time series, where the server can be asked for it.
  const { selected } = search;
  const chosen = useQuery({
    ...documentQuery(page.subject, "timeline", {
      ...(followsEnd && !page.paused ? {} : { from: shown.from, to: shown.to }),
      ...filters,
      focus: selected === undefined ? undefined : patternOf(selected),
      series: "live_bytes",
      points: Math.max(50, Math.min(2000, Math.floor(scale.width / 100) * 50)),
    }),
    enabled: width > 0 && selected !== undefined && filters["focus"] === undefined && !report && !page.brushing,
    placeholderData: undefined,
  });
  const marks = query.data?.marks ?? [];
  const rooms = roomsOf(scale, marks);
  const part = useMemo(
    () => (selected !== undefined && chosen.data ? { name: nameIn(selected), timeline: chosen.data } : undefined),
    [selected, chosen.data],
  );
  // Beside another recording's live memory the first track is what there is to compare: the rest gives its room.
  const isCompared = page.view === "compare" && search.other !== undefined;
  const tracks = useMemo(() => {
    if (!query.data) return [];
    const all = buildTracks(query.data, room * heightFactor, threads.data?.threads, part);
    return isCompared ? all.slice(0, 1) : all;
  }, [query.data, room, heightFactor, threads.data, part, isCompared]);

  const window = brush ?? search.window;
  const client = useQueryClient();
  const send = useThrottled(
    (next: Window) => page.brush(next, true),
    BRUSH_MS,
    () => client.isFetching({ type: "active" }) > 0,
  );

  const instantAt = (clientX: number) => toInstant(scale, clientX - (host.current?.getBoundingClientRect().left ?? 0));

  const onPointerDown = (event: PointerEvent<HTMLDivElement>) => {
    if (event.button !== 0) return;
    const grip = event.target instanceof HTMLElement ? event.target.dataset["grip"] : undefined;
    const t = instantAt(event.clientX);
    if (grip === "from" && window) drag.current = { kind: "from", other: window.to };
    else if (grip === "to" && window) drag.current = { kind: "to", other: window.from };
    else if (grip === "a" || grip === "b") drag.current = { kind: grip };
    else if (event.shiftKey || report) drag.current = { kind: "pan", startX: event.clientX, shown };
    else drag.current = { kind: "brush", anchor: t, moved: false, startX: event.clientX };
    event.currentTarget.setPointerCapture(event.pointerId);
  };

  const onPointerMove = (event: PointerEvent<HTMLDivElement>) => {
    const t = instantAt(event.clientX);
    setHover(t);
    const now = drag.current;
    if (!now) return;
    if (now.kind === "brush") {
      if (!now.moved && Math.abs(event.clientX - now.startX) < 3) return;
      if (!now.moved) {
        now.moved = true;
        const first = ordered(now.anchor, t, endNs);
        setBrush(first);
        page.brush(first, true);
        return;
      }
      const next = ordered(now.anchor, t, endNs);
      setBrush(next);
      send(next);
    } else if (now.kind === "from" || now.kind === "to") {
      const next = ordered(now.other, t, endNs);
      setBrush(next);
      send(next);
    } else if (now.kind === "pan") {
      const delta = ((now.startX - event.clientX) / scale.width) * (now.shown.to - now.shown.from);
      go({ shown: panWindow(now.shown, delta, endNs) }, { replace: true });
    } else {
      go({ [now.kind]: t }, { replace: true });
    }
  };

  const onPointerUp = (event: PointerEvent<HTMLDivElement>) => {
    const now = drag.current;
    drag.current = null;
    if (!now) return;
    if (now.kind === "brush" && !now.moved) {
      const t = instantAt(event.clientX);
      // A pointer event does not count clicks.
      const isSecond = clicked.current !== undefined && event.timeStamp - clicked.current.time < 500;
      if (!isSecond) {
        // The first half of a double click: its second half puts back what this changes.
        const { metric, at, window: before } = search;
        clicked.current = { metric, at, window: before, time: event.timeStamp };
        go({ at: t, window: undefined, metric: undefined });
      }
    } else if (brush) {
      send.cancel();
      page.brush(brush, false);
      // One entry in the history for a whole gesture.
      go({ window: brush, at: undefined }, { replace: now.kind !== "brush" });
    }
    setBrush(null);
  };

  const commit = () => {
    if (!search.window) return;
    go({ zoom: [...(search.zoom ?? []), search.window], window: undefined, shown: undefined });
  };

  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter") {
      commit();
      event.preventDefault();
      return;
    }
    const change = keyChange(event.key, event.shiftKey, {
      shown,
      window: search.window,
      at: search.at,
      a: search.a,
      b: search.b,
      endNs,
    });
    if (!change) return;
    go("at" in change && change.at !== undefined ? { ...change, metric: undefined } : change, {
      replace: event.repeat,
    });
    event.preventDefault();
    event.stopPropagation();
  };

  useWheel(surface, (event) => {
    go({ shown: wheelChange(shown, instantAt(event.clientX), event.deltaX, event.deltaY, endNs) }, { replace: true });
  });

  const span = window && toSpan(scale, window);
  // Of a running program the last instants are on their way.
  const gaps = gapsBetween(page.info?.captures ?? [], page.running ? 0 : endNs)
    .map((gap) => toSpan(scale, gap))
    .filter((gap) => gap !== undefined && gap.width >= NARROWEST_GAP);
  // The two ranges that a comparison is of.
  const compared = (search.ranges ?? []).map((range, i) => ({ name: i === 0 ? "A" : "B", span: toSpan(scale, range) }));
  const step = resolution(scale);
  const drawn = tracks.map((track) =>
    folded.includes(foldName(track.id)) ? { ...track, height: FOLDED_PX - 1, curves: [], heat: undefined } : track,
  );
  return (
    <section className="timeline" aria-label="Timeline" data-stale={query.isPlaceholderData || undefined}>
      <div className="timeline-bar">
        <Crumbs window={window} commit={commit} />
        {beside}
        <Readout timeline={query.data} peak={peak} at={hover ?? search.at} step={step} />
        <div className="timeline-side">
          <Shortcuts peakAt={peak?.at_ns} />
        </div>
      </div>
      {width > 0 && length(shown) < length(whole) && (
        <div className="timeline-host">
          <div className="track-names" />
          <div className="timeline-plot">
            <Minimap whole={whole} shown={shown} width={width} />
          </div>
        </div>
      )}
      <div className="timeline-host">
        <div className="track-names">
          {tracks.map((track) => {
            const isFolded = folded.includes(foldName(track.id));
            return (
              <div
                key={track.id}
                className="track-name"
                style={{ height: isFolded ? FOLDED_PX : track.height + 1 }}
                data-folded={isFolded || undefined}
              >
                <button
                  type="button"
                  className="track-fold"
                  aria-expanded={!isFolded}
                  title={isFolded ? "Show this track" : "Fold this track"}
                  onClick={() => go({ folded: toggled(folded, foldName(track.id)) }, { replace: true })}
                >
                  <span className="track-title">{track.name}</span>
                  {!isFolded && track.legend.length > 0 && (
                    <span className="track-legends">
                      {track.legend.map((entry) => (
                        <span key={entry.label} className="legend" title={entry.hint ?? entry.label}>
                          <i data-look={entry.look} style={{ color: `var(${entry.color})` }} />
                          {entry.label}
                        </span>
                      ))}
                    </span>
                  )}
                </button>
              </div>
            );
          })}
        </div>
        <div ref={host} className="timeline-plot">
          {query.error && !query.data && (
            <p className="timeline-failure bad">The timeline cannot be drawn: {sentence(query.error.message)}</p>
          )}
          <div
            ref={surface}
            className="timeline-surface"
            role="group"
            aria-label={describe(query.data, window, search.at)}
            tabIndex={0}
            onPointerDown={onPointerDown}
            onPointerMove={onPointerMove}
            onPointerUp={onPointerUp}
            onPointerCancel={onPointerUp}
            onPointerLeave={() => setHover(null)}
            onDoubleClick={() =>
              // In place of the entry that the first click made.
              go(
                {
                  window: undefined,
                  shown: undefined,
                  at: undefined,
                  zoom: undefined,
                  metric: clicked.current?.metric,
                },
                { replace: true },
              )
            }
            onKeyDown={onKeyDown}
          >
            {tracks.length === 0 && !query.error && <div className="timeline-blank muted">Reading the timeline…</div>}
            {drawn.map((track, i) => (
              <div key={track.id} className="track" data-last={i === drawn.length - 1 || undefined}>
                {track.heat ? (
                  <Heat rows={track.heat} t={track.t} shown={shown} width={width} height={track.height} />
                ) : (
                  <TimeChart
                    t={track.t}
                    curves={track.curves}
                    shown={shown}
                    width={width}
                    height={track.height}
                    unit={track.unit}
                    withTimeAxis={false}
                  />
                )}
              </div>
            ))}
            {width > 0 && tracks.length > 0 && (
              <div className="time-axis">
                <TimeAxis shown={shown} width={width} />
              </div>
            )}
            {gaps.map(
              (gap) =>
                gap && (
                  <div key={gap.left} className="gap" style={gap} title="Recording was off">
                    {gap.width > 90 && <span>not recorded</span>}
                  </div>
                ),
            )}
            {compared.map(
              (range) =>
                range.span && (
                  <div key={range.name} className="compared" data-range={range.name} style={range.span}>
                    <span>{range.name}</span>
                  </div>
                ),
            )}
            {span && (
              <div className="brush" style={{ left: span.left, width: span.width }}>
                <i data-grip="from" className="grip" />
                <i data-grip="to" className="grip" />
              </div>
            )}
            {peak && peak.count > 0 && <Flag scale={scale} t={peak.at_ns} kind="peak" text="peak" />}
            {search.at !== undefined && (
              <Flag scale={scale} t={search.at} kind="at" text={formatInstant(search.at, step)} />
            )}
            {marks.map((mark, i) => (
              <Flag
                key={`${mark.t_ns} ${mark.label}`}
                scale={scale}
                t={mark.t_ns}
                kind="mark"
                text={mark.label}
                room={rooms[i]}
              />
            ))}
            {search.a !== undefined && <Flag scale={scale} t={search.a} kind="a" text="A" />}
            {search.b !== undefined && <Flag scale={scale} t={search.b} kind="b" text="B" />}
            {notes.list.map((note) => (
              <Flag key={`note ${note.t} ${note.text}`} scale={scale} t={note.t} kind="note" text={note.text} />
            ))}
            {hover !== null && <Flag scale={scale} t={hover} kind="hover" text="" />}
          </div>
        </div>
      </div>
      <HeightGrip
        value={heightFactor}
        onChange={(value) => {
          setHeightFactor(value);
          writeHeightFactor(value);
        }}
      />
    </section>
  );
}

/** Pixels of a folded track. */
const FOLDED_PX = 25;

/** Tracks of single threads fold together. */
function foldName(id: string): FoldName {
  return FOLDS.find((name) => name === id) ?? "threads";
}

function toggled(folded: readonly FoldName[], name: FoldName): FoldName[] | undefined {
  const next = folded.includes(name) ? folded.filter((one) => one !== name) : [...folded, name];
  return next.length > 0 ? next : undefined;
}

function describe(timeline: TimelineDocument | undefined, window: Window | undefined, at: number | undefined): string {
  const what = window
    ? `Window from ${formatDuration(window.from)} to ${formatDuration(window.to)}.`
    : at !== undefined
      ? `Instant ${formatDuration(at)}.`
      : "No window chosen.";
  const range = timeline ? ` Shown: ${formatDuration(timeline.from_ns)} to ${formatDuration(timeline.to_ns)}.` : "";
  return `${what}${range} Arrow keys move, with shift they widen, plus and minus zoom, Enter commits, Escape clears.`;
}

function ordered(one: number, other: number, endNs: number): Window {
  return clampWindow({ from: Math.min(one, other), to: Math.max(one, other) }, endNs, 1);
}
