// Where the marks of an axis stand, and what is written there.
import { formatInstant } from "./format.ts";

/** Axis marks at round numbers, of binary units for bytes; about `wanted` of them, and one above zero at least. */
export function roundSplits(min: number, max: number, base: 1000 | 1024, wanted: number): number[] {
  if (!(max > min)) return [min];
  const rough = (max - min) / wanted;
  const power = base ** Math.max(0, Math.floor(Math.log(rough) / Math.log(base)));
  const lead = rough / power;
  const decade = 10 ** Math.floor(Math.log10(lead));
  const nice = [1, 2, 5, 10].map((n) => n * decade);
  // Near the next binary unit decimal steps are no longer round: 1000 KiB is 0.98 MiB.
  if (base === 1024 && decade === 100) nice.splice(2, 2, 256, 512, 1024);
  const step = Math.max((nice.find((n) => n >= lead * (1 - 1e-9)) ?? lead) * power, base === 1000 && max < 3 ? 0.2 : 1);
  const out: number[] = [];
  for (let i = Math.ceil(min / step); i * step <= max; i += 1) out.push(i * step);
  if (out.length > 1 || wanted > 1 || min > 0) return out;
  const highest = nice.map((n) => n * power).findLast((n) => n <= max) ?? 0;
  return highest > 0 ? [...out, highest] : out;
}

/** The largest power of ten that `step` is a multiple of: how finely its multiples must be written. */
export function tickResolution(step: number): number {
  let resolution = 10 ** Math.floor(Math.log10(step));
  for (let i = 0; i < 3 && Math.abs(step / resolution - Math.round(step / resolution)) > 1e-6; i += 1) resolution /= 10;
  return resolution;
}

/** What is written at marks of a time axis, in seconds: as fine as the step between them, of which one may be seen. */
export function instantLabels(seconds: readonly number[], step: number): string[] {
  const largest = (seconds.at(-1) ?? 1) * 1e9;
  return seconds.map((at) => formatInstant(at * 1e9, tickResolution(step * 1e9), largest));
}

/** A mark without trailing zeros: `40.0 MiB` → `40 MiB`. */
export function trimZeros(text: string): string {
  return text.replace(/\.0+(?=\s|$)/, "").replace(/(\.\d*?)0+(?=\s|$)/, "$1");
}
