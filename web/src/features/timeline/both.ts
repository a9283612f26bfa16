// Scales of two timelines that are compared.
import type { Timeline } from "../../api/types.ts";
import { findSeries } from "./layout.ts";

/** From so many times the length on, the shorter one would be a streak on a common axis. */
const MUCH_LONGER = 4;

/** Ends of the time axes; one that is not known yet has the other's. */
export function rangesOf(before: number | undefined, after: number | undefined): { ends: number[]; isCommon: boolean } {
  const ends = [before ?? after ?? 1, after ?? before ?? 1].map((end) => Math.max(1, end));
  const longest = Math.max(...ends);
  const isCommon = longest <= MUCH_LONGER * Math.min(...ends);
  return { ends: isCommon ? [longest, longest] : ends, isCommon };
}

/** The most live bytes of any column. */
export function largestOf(timeline: Timeline | undefined): number {
  const values = timeline && findSeries(timeline, "live_bytes")?.max;
  return values?.reduce<number>((most, value) => Math.max(most, value ?? 0), 0) ?? 0;
}
