// Bars over classes of a quantity. Figures are in the table beside it for those who cannot see the bars.
import type { Histogram as Data } from "../api/types.ts";
import { formatBytes, formatCount, formatExact, formatValue, plural } from "../lib/format.ts";

interface HistogramProps {
  data: Data;
  label: string;
  formatClass: (lower: number) => string;
  unit?: "bytes" | "count";
}

const HEIGHT = 72;
/** Width of a class at most. */
const MOST_PX = 26;

export function Histogram({ data, label, formatClass, unit = "count" }: HistogramProps) {
  const values = unit === "bytes" ? data.bytes : data.count;
  const first = values.findIndex((value) => value > 0);
  if (first < 0) return <p className="muted">No block in this window.</p>;
  const last = values.findLastIndex((value) => value > 0);
  const classes = data.lower
    .slice(first, last + 1)
    .map((lower, i) => ({ lower, upper: data.lower[first + i + 1], index: first + i }));
  const [only] = classes.length === 1 ? classes : [];
  if (only) return <OneClass data={data} label={label} formatClass={formatClass} only={only} />;
  const widest = Math.max(90, classes.length * MOST_PX);
  const largest = Math.max(...classes.map((c) => values[c.index] ?? 0));
  return (
    <figure className="histogram">
      <figcaption>
        {label}{" "}
        <span className="muted">
          up to <span title={formatExact(largest, unit)}>{formatValue(largest, unit)}</span>
          {unit === "count" && (largest === 1 ? " block" : " blocks")}
          {classes.some(({ index }) => (data.live_count[index] ?? 0) > 0) && (
            <>
              , <i className="histogram-live" aria-hidden="true" /> never freed
            </>
          )}
        </span>
      </figcaption>
      <div
        className="histogram-bars"
        style={{ height: HEIGHT, maxWidth: widest }}
        role="img"
        aria-label={describe(classes, values, { formatClass, label, unit })}
      >
        {classes.map(({ lower, upper, index }) => {
          const count = data.count[index] ?? 0;
          const live = data.live_count[index] ?? 0;
          const height = Math.max(count > 0 ? 1.5 : 0, ((values[index] ?? 0) / largest) * HEIGHT);
          const range = rangeText({ lower, upper, index }, formatClass);
          return (
            <span
              key={lower}
              className="histogram-class"
              title={`${range}: ${formatCount(count)} blocks, ${formatBytes(data.bytes[index] ?? 0)}${live > 0 ? `, ${formatCount(live)} never freed` : ""}`}
            >
              <i style={{ height }}>
                <b style={{ height: count > 0 ? (height * live) / count : 0 }} />
              </i>
            </span>
          );
        })}
      </div>
      <div className="histogram-axis muted" style={{ maxWidth: widest }}>
        <span>{formatClass(classes[0]?.lower ?? 0)}</span>
        {classes.length > 6 && <span>{formatClass(classes[Math.floor(classes.length / 2)]?.lower ?? 0)}</span>}
        {classes.length > 1 && <span>{formatClass(classes.at(-1)?.lower ?? 0)}</span>}
      </div>
    </figure>
  );
}

interface Class {
  lower: number;
  upper: number | undefined;
  index: number;
}

/** What is all alike needs no bars. */
function OneClass({ data, label, formatClass, only }: HistogramProps & { only: Class }) {
  const live = data.live_count[only.index] ?? 0;
  return (
    <figure className="histogram">
      <figcaption>
        {label} <span className="muted">of {plural(data.count[only.index] ?? 0, "block")}</span>
      </figcaption>
      <p className="histogram-one">
        <b>{rangeText(only, formatClass)}</b>
        {live > 0 && <span className="muted">, {formatCount(live)} never freed</span>}
      </p>
    </figure>
  );
}

function rangeText({ lower, upper }: Class, formatClass: (lower: number) => string): string {
  return upper === undefined ? `from ${formatClass(lower)}` : `${formatClass(lower)} to ${formatClass(upper)}`;
}

function describe(
  classes: readonly { lower: number; index: number }[],
  values: readonly number[],
  { formatClass, label, unit }: { formatClass: (lower: number) => string; label: string; unit: "bytes" | "count" },
): string {
  const top = [...classes].sort((a, b) => (values[b.index] ?? 0) - (values[a.index] ?? 0)).slice(0, 3);
  return `${label}. Most: ${top.map((c) => `${formatClass(c.lower)} with ${formatExact(values[c.index] ?? 0, unit)}`).join(", ")}.`;
}
