// What other allocators would have taken: names, ranges and order of the rows of “heaptrace replay”, and what they say.
import type { KeptReplay, ReplayRow } from "../api/types.ts";
import { formatBytes, formatPercent, plural } from "./format.ts";

/** The settings of a row: `arena_max=1`. */
export function settingsOf(row: ReplayRow): string {
  return Object.entries(row.settings)
    .map(([name, value]) => `${name}=${value}`)
    .join(" ");
}

/** An allocator with its settings: `glibc 2.36 with arena_max=1`. */
export function replayedName(row: ReplayRow): string {
  const settings = settingsOf(row);
  return settings === "" ? row.allocator : `${row.allocator} with ${settings}`;
}

/** Lowest and highest over the orders that were tried. */
export function boundsOf(pair: readonly number[]): { low: number; high: number } {
  const [low = 0, high = low] = pair;
  return { low: Math.min(low, high), high };
}

/** A range in bytes; less than a hundredth apart is one figure. */
export function formatBounds(pair: readonly number[]): string {
  const { low, high } = boundsOf(pair);
  return high - low <= high / 100 ? formatBytes(high) : `${formatBytes(low)} – ${formatBytes(high)}`;
}

/** What failed before it began has a reason and no figures. */
export function hasFigures(row: ReplayRow): boolean {
  return !row.failed || boundsOf(row.peak_bytes).high > 0;
}

/** The row that would hold least at its peak comes first; those without figures come last. */
export function inOrderOfPeaks(rows: readonly ReplayRow[]): ReplayRow[] {
  const rank = (row: ReplayRow) => (hasFigures(row) ? boundsOf(row.peak_bytes).high : Number.POSITIVE_INFINITY);
  const before = (a: number, b: number) => (a === b ? 0 : a < b ? -1 : 1);
  return [...rows].sort((a, b) => before(rank(a), rank(b)));
}

/** The row that would hold a tenth less than was recorded, if the server has found one. */
export function smallerRow({ replay, smaller }: KeptReplay): ReplayRow | undefined {
  return smaller == null ? undefined : replay?.rows[smaller];
}

/** What the rows say, in the words of “heaptrace summary”; `undefined`: nothing has been replayed. */
export function replayVerdict(kept: KeptReplay): string | undefined {
  const { replay, checked } = kept;
  if (!replay) return undefined;
  const { allocator, peak_bytes: recorded } = replay.recorded;
  const row = smallerRow(kept);
  if (row)
    return `${replayedName(row)} would hold ${formatBytes(boundsOf(row.peak_bytes).high)} at the peak instead of ${formatBytes(recorded)} (${allocator})`;
  if (!checked) return "The self-check failed: these are figures without a verdict";
  return `None of ${plural(replay.rows.length, "replayed allocator")} would hold a tenth less than ${allocator} does`;
}

/** How far all rows may be off: by as much as the recording's own allocator, replayed. */
export function replayError({ replay }: KeptReplay): string | undefined {
  const check = replay?.self_check;
  return check ? formatPercent(Math.abs(check.error)) : undefined;
}
