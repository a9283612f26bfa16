// A uPlot chart of time series. It only draws; pointing, brushing and keyboard are handled by the component that uses it.
import { useLayoutEffect, useMemo, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { formatBytes, formatShortCount } from "../lib/format.ts";
import { instantLabels, roundSplits, trimZeros } from "../lib/ticks.ts";
import type { Window } from "../lib/time.ts";
import { paintForPaper } from "./paper.ts";
import { token, useTheme } from "./theme.ts";

/** Space left of the plot for the value axis, so that charts above one another line up. */
export const AXIS_WIDTH = 68;
/** Space right of the plot. */
export const EDGE = 22;
/** A chart that is lower has room for one value beside it. */
const LOW = 40;

export interface Curve {
  values: readonly (number | null)[];
  /** Name of a design token. */
  color: string;
  /** `layer`: an area that hides what lies behind it. */
  look: "area" | "line" | "dashed" | "faint-area" | "layer";
}

/** Pixels. */
export const TIME_AXIS_HEIGHT = 20;

interface TimeChartProps {
  t: readonly number[];
  curves: readonly Curve[];
  shown: Window;
  width: number;
  height: number;
  unit: "bytes" | "count" | "rate";
  withTimeAxis: boolean;
  /** The largest value of the axis, for charts that are compared; else that of the curves. */
  top?: number;
}

const NO_CURVES: readonly Curve[] = [];

/** Times alone, below what several charts show of the same window. */
export function TimeAxis({ shown: { from, to }, width }: Pick<TimeChartProps, "shown" | "width">) {
  // The same as long as the window is: another list would draw the axis anew.
  const t = useMemo(() => [from, to], [from, to]);
  return (
    <TimeChart
      t={t}
      curves={NO_CURVES}
      shown={{ from, to }}
      width={width}
      height={TIME_AXIS_HEIGHT}
      unit="rate"
      withTimeAxis
    />
  );
}

export function TimeChart({ t, curves, shown, width, height, unit, withTimeAxis, top }: TimeChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const theme = useTheme();
  const looks = curves.map((curve) => `${curve.look} ${curve.color}`).join(",");

  // biome-ignore lint/correctness/useExhaustiveDependencies: a new chart only for a new look; data and size follow below
  useLayoutEffect(() => {
    if (!host.current || width <= 0) return;
    const made = new uPlot(
      options({ t, curves, shown, width, height, unit, withTimeAxis, ...(top === undefined ? {} : { top }) }),
      chartData(t, curves),
      host.current,
    );
    plot.current = made;
    return () => {
      plot.current = null;
      made.destroy();
    };
  }, [theme, looks, unit, withTimeAxis, top, width > 0]);

  useLayoutEffect(() => {
    if (width > 0) plot.current?.setSize({ width, height });
  }, [width, height]);

  // What is to be drawn waits for a microtask, or for the end of a batch.
  useLayoutEffect(() => paintForPaper(() => plot.current?.batch(() => {})), []);

  useLayoutEffect(() => {
    const chart = plot.current;
    if (!chart) return;
    chart.batch(() => {
      chart.setData(chartData(t, curves), false);
      chart.setScale("x", { min: shown.from / 1e9, max: Math.max(shown.to, shown.from + 1) / 1e9 });
    });
  }, [t, curves, shown.from, shown.to]);

  return <div ref={host} className="time-chart" style={{ height }} aria-hidden="true" />;
}

function chartData(t: readonly number[], curves: readonly Curve[]): uPlot.AlignedData {
  return [t.map((ns) => ns / 1e9), ...curves.map((curve) => [...curve.values])];
}

function options({ curves, shown, width, height, unit, withTimeAxis, top }: TimeChartProps): uPlot.Options {
  const font = `11px ${token("--font-text") || "sans-serif"}`;
  const axis = {
    font,
    stroke: token("--text-muted"),
    grid: { stroke: token("--grid"), width: 1 },
    ticks: { show: false },
  };
  const write = unit === "bytes" ? formatBytes : formatShortCount;
  return {
    width,
    height,
    padding: [6, EDGE, withTimeAxis ? 0 : 4, 0],
    cursor: { show: false },
    legend: { show: false },
    scales: {
      x: { time: false, auto: false, min: shown.from / 1e9, max: Math.max(shown.to, shown.from + 1) / 1e9 },
      y: { range: (_, __, max) => [0, (top ?? max) > 0 ? (top ?? max) * 1.05 : 1] },
    },
    axes: [
      {
        ...axis,
        show: withTimeAxis,
        size: 20,
        gap: 3,
        space: 80,
        values: (_, splits, __, ___, step) => instantLabels(splits, step),
      },
      {
        ...axis,
        size: AXIS_WIDTH,
        gap: 6,
        space: 18,
        // A zero would touch the first instant below it, and in a low chart the value above it.
        values: (_, splits) =>
          splits.map((value) =>
            value === 0 && (withTimeAxis || unit !== "bytes" || height < LOW) ? "" : trimZeros(write(value)),
          ),
        splits: (_, __, min, max) =>
          roundSplits(
            min,
            max,
            unit === "bytes" ? 1024 : 1000,
            height < LOW ? 1 : height < 60 ? 2 : height < 110 ? 4 : 6,
          ),
      },
    ],
    series: [{}, ...curves.map(series)],
  };
}

function series(curve: Curve): uPlot.Series {
  const color = token(curve.color);
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  return {
    spanGaps: true,
    points: { show: false },
    stroke: curve.look === "faint-area" ? "transparent" : color,
    width: curve.look === "faint-area" ? 0 : 1.25,
    ...(curve.look === "dashed" ? { dash: [4, 3] } : {}),
    ...(curve.look === "area" ? { fill: withAlpha(color, 0.3) } : {}),
    ...(curve.look === "layer" ? { fill: `color-mix(in oklab, ${color} 38%, ${token("--surface")})` } : {}),
    ...(curve.look === "faint-area" ? { fill: withAlpha(color, 0.22) } : {}),
    ...(stepped && curve.look !== "dashed" ? { paths: stepped } : {}),
  };
}

function withAlpha(color: string, alpha: number): string {
  return `color-mix(in oklab, ${color} ${alpha * 100}%, transparent)`;
}
