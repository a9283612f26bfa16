// Many threads in little room: a row of colours each, darker where more was allocated.
import { useLayoutEffect, useRef } from "react";
import type { Window } from "../../lib/time.ts";
import { token, useTheme } from "../../ui/theme.ts";
import { AXIS_WIDTH, EDGE } from "../../ui/time-chart.tsx";
import type { HeatRow } from "./tracks.ts";

interface HeatProps {
  rows: readonly HeatRow[];
  /** Borders of the columns. */
  t: readonly number[];
  shown: Window;
  width: number;
  height: number;
}

export function Heat({ rows, t, shown, width, height }: HeatProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  const room = Math.max(1, width - AXIS_WIDTH - EDGE);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another theme has other colours
  useLayoutEffect(() => {
    const target = canvas.current;
    const context = target?.getContext("2d");
    if (!target || !context) return;
    const scale = window.devicePixelRatio || 1;
    target.width = Math.round(room * scale);
    target.height = Math.round(height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, room, height);
    context.fillStyle = token("--allocated");
    const largest = Math.max(1, ...rows.flatMap((row) => row.values));
    const x = (ns: number) => ((ns - shown.from) / Math.max(1, shown.to - shown.from)) * room;
    const step = height / rows.length;
    rows.forEach((row, i) => {
      row.values.forEach((value, column) => {
        if (value <= 0) return;
        const left = x(t[column] ?? 0);
        context.globalAlpha = 0.18 + 0.82 * Math.sqrt(value / largest);
        context.fillRect(left, i * step, Math.max(1, x(t[column + 1] ?? shown.to) - left), Math.max(1, step - 0.5));
      });
    });
    context.globalAlpha = 1;
  }, [rows, t, shown.from, shown.to, room, height, theme]);
  return (
    <div className="heat" style={{ height }}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`Allocations a second of ${rows.length} threads, a row each, from ${rows[0]?.name} to ${rows.at(-1)?.name}`}
        style={{ width: room, height, marginLeft: AXIS_WIDTH }}
      />
    </div>
  );
}
