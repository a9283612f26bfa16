// A time series the size of a word. Its range is in the title; the exact values are on the site's own page.
import { formatBytes } from "../lib/format.ts";

export function Sparkline({
  values,
  width = 96,
  height = 18,
}: {
  values: readonly number[];
  width?: number;
  height?: number;
}) {
  const largest = Math.max(0, ...values);
  if (values.length === 0 || largest === 0) return <span className="muted">–</span>;
  const step = width / Math.max(1, values.length - 1);
  const y = (value: number) => (height - 1.5 - (value / largest) * (height - 3)).toFixed(1);
  const line = values.map((value, i) => `${(i * step).toFixed(1)},${y(value)}`).join(" ");
  const text = `from ${formatBytes(values[0] ?? 0)} to ${formatBytes(values.at(-1) ?? 0)}, at most ${formatBytes(largest)}`;
  return (
    <svg className="sparkline" width={width} height={height} role="img" aria-label={text}>
      <title>{text}</title>
      <polygon points={`0,${height} ${line} ${width},${height}`} />
      <polyline points={line} />
    </svg>
  );
}
