// Layers that lie on one another over time, with a table of them: pointing shows the values of an instant, a click chooses
// a layer.
import { type PointerEvent, useMemo, useRef, useState } from "react";
import { formatBytes, formatInstant, formatPercent } from "../lib/format.ts";
import { layerAt, stackUp } from "../lib/layers.ts";
import type { Window } from "../lib/time.ts";
import { AXIS_WIDTH, EDGE, TimeChart } from "./time-chart.tsx";
import { useWidth } from "./use-size.ts";
import "./stacked-chart.css";

export interface Layer {
  id: string;
  label: string;
  title?: string;
  /** Name of a design token. */
  color: string;
  values: readonly number[];
}

interface StackedChartProps {
  /** The moments that the values are of, in order. */
  t: readonly number[];
  /** From the bottom up. */
  layers: readonly Layer[];
  shown: Window;
  height: number;
  label: string;
  onChoose?: (layer: Layer) => void;
  chosen?: string | undefined;
  onInstant?: (t: number) => void;
}

export function StackedChart({ t, layers, shown, height, label, onChoose, chosen, onInstant }: StackedChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const width = useWidth(host);
  const [hover, setHover] = useState<{ at: number; layer: number | undefined } | undefined>();
  const sums = useMemo(() => stackUp(layers.map((layer) => layer.values)), [layers]);
  const curves = useMemo(
    () => layers.map((layer, i) => ({ values: sums[i] ?? [], color: layer.color, look: "layer" as const })).reverse(),
    [layers, sums],
  );
  const top = useMemo(() => sums.at(-1) ?? [], [sums]);
  const largest = Math.max(1, ...top) * 1.05;

  const find = (event: PointerEvent<HTMLElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    const part = (event.clientX - box.left - AXIS_WIDTH) / Math.max(1, width - AXIS_WIDTH - EDGE);
    const ns = shown.from + Math.min(1, Math.max(0, part)) * (shown.to - shown.from);
    // A value holds from its moment on.
    const after = t.findIndex((moment) => moment > ns);
    const at = Math.max(0, (after < 0 ? t.length : after) - 1);
    // The plot lies between its padding and the axis of time.
    const value = ((box.top + height - 20 - event.clientY) / (height - 26)) * largest;
    return { at, layer: layerAt(sums, at, value), ns };
  };
  // What lies highest is the question; at the end most of it is gone.
  const highest = useMemo(() => top.reduce((best, value, i) => (value >= (top[best] ?? 0) ? i : best), 0), [top]);
  const at = Math.min(hover?.at ?? highest, t.length - 1);
  const total = top[at] ?? 0;
  return (
    <figure className="stacked">
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: the table beside it has a button for every layer */}
      <div
        ref={host}
        className="stacked-plot"
        role="img"
        aria-label={label}
        onPointerMove={(event) => setHover(find(event))}
        onPointerLeave={() => setHover(undefined)}
        onClick={(event) => {
          const { layer, ns } = find(event as unknown as PointerEvent<HTMLElement>);
          const found = layer === undefined ? undefined : layers[layer];
          if (found && onChoose) onChoose(found);
          else onInstant?.(Math.round(ns));
        }}
      >
        <TimeChart t={t} curves={curves} shown={shown} width={width} height={height} unit="bytes" withTimeAxis />
      </div>
      <div className="stacked-scroll">
        <table className="small-table stacked-legend">
          <thead>
            <tr>
              <th>
                {hover || at < t.length - 1
                  ? `${hover ? "At" : "Highest drawn, at"} ${formatInstant(t[at] ?? 0)}`
                  : "At the end"}
              </th>
              <th className="numeric">{formatBytes(total)}</th>
              <th className="numeric">%</th>
            </tr>
          </thead>
          <tbody>
            {layers
              .map((layer, i) => (
                <tr
                  key={layer.id}
                  data-layer={layer.id}
                  data-lit={hover?.layer === i || chosen === layer.id || undefined}
                >
                  <td>
                    <span className="layer">
                      <i style={{ background: `var(${layer.color})` }} />
                      {onChoose ? (
                        <button
                          type="button"
                          className="layer-name mono"
                          title={layer.title}
                          onClick={() => onChoose(layer)}
                        >
                          {layer.label}
                        </button>
                      ) : (
                        <span className="layer-name" title={layer.title}>
                          {layer.label}
                        </span>
                      )}
                    </span>
                  </td>
                  <td className="numeric">{formatBytes(layer.values[at] ?? 0)}</td>
                  <td className="numeric">{formatPercent((layer.values[at] ?? 0) / (total || 1))}</td>
                </tr>
              ))
              .reverse()}
          </tbody>
        </table>
      </div>
    </figure>
  );
}
