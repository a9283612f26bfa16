// The timeline without a browser: where an instant is drawn, what the columns say, what keys and wheels change.
import type { Capture, Series, SeriesName, Timeline } from "../../api/types.ts";
import { formatInstant } from "../../lib/format.ts";
import { clampWindow, panWindow, type Window, zoomWindow } from "../../lib/time.ts";

/** Maps instants to pixels: `left` is where `shown.from` is drawn, `width` the length of `shown`. */
export interface Scale {
  shown: Window;
  left: number;
  width: number;
}

export function toPixel(scale: Scale, ns: number): number {
  return scale.left + ((ns - scale.shown.from) / (scale.shown.to - scale.shown.from)) * scale.width;
}

/** Whole nanoseconds, never outside of what is shown. */
export function toInstant(scale: Scale, pixel: number): number {
  const part = Math.min(1, Math.max(0, (pixel - scale.left) / scale.width));
  return Math.round(scale.shown.from + part * (scale.shown.to - scale.shown.from));
}

/** Nanoseconds under one pixel: how finely instants need to be written. */
export function resolution(scale: Scale): number {
  return Math.max(1, (scale.shown.to - scale.shown.from) / Math.max(1, scale.width));
}

/** The part of a window that is visible, in pixels; `undefined` if none is. */
export function toSpan(scale: Scale, window: Window): { left: number; width: number } | undefined {
  const left = Math.max(scale.left, toPixel(scale, window.from));
  const right = Math.min(scale.left + scale.width, toPixel(scale, window.to));
  return right > left ? { left, width: right - left } : undefined;
}

/** Where nothing was recorded: what no capture covers, up to `end`. */
export function gapsBetween(captures: readonly Capture[], end: number): Window[] {
  const gaps: Window[] = [];
  let covered = 0;
  for (const { from_ns, to_ns } of [...captures].sort((a, b) => a.from_ns - b.from_ns)) {
    if (from_ns > covered) gaps.push({ from: covered, to: from_ns });
    covered = Math.max(covered, to_ns);
  }
  if (captures.length > 0 && end > covered) gaps.push({ from: covered, to: end });
  return gaps;
}

export function findSeries(timeline: Timeline, name: SeriesName, thread?: number): Series | undefined {
  return timeline.series.find((s) => s.name === name && (thread === undefined || s.thread === thread));
}

/** The column that covers an instant. */
export function columnAt(timeline: Timeline, ns: number): number {
  const starts = timeline.t_ns;
  let low = 0;
  let high = starts.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((starts[middle] ?? 0) <= ns) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Times for a stepped curve: every column's start, and the end of the last. */
export function stepTimes(timeline: Timeline): number[] {
  return [...timeline.t_ns, timeline.to_ns];
}

/** Values for a stepped curve over {@link stepTimes}. */
export function stepValues(values: readonly (number | null)[]): (number | null)[] {
  return [...values, values.at(-1) ?? null];
}

/** What changes in the URL's state. */
export interface Change {
  window?: Window | undefined;
  shown?: Window | undefined;
  at?: number | undefined;
  a?: number | undefined;
  b?: number | undefined;
}

interface KeyState {
  shown: Window;
  window: Window | undefined;
  at: number | undefined;
  /** The instants that are compared, if they were chosen. */
  a?: number | undefined;
  b?: number | undefined;
  endNs: number;
}

/** A step of what is shown, as a part of it: some of what was seen stays in sight. */
const PAGE = 0.8;

/**
 * Arrows move what is chosen, with shift they move its end; plus and minus zoom, pages move what is shown, A and B put
 * the instants to compare where the choice is; `undefined`: not our key.
 */
export function keyChange(key: string, shift: boolean, state: KeyState): Change | undefined {
  const { shown, window, at, endNs } = state;
  const step = Math.max(1, Math.round((shown.to - shown.from) / 50));
  const middle = at ?? (window ? (window.from + window.to) / 2 : (shown.from + shown.to) / 2);
  switch (key) {
    case "ArrowLeft":
    case "ArrowRight": {
      const delta = key === "ArrowLeft" ? -step : step;
      if (shift) {
        const base = window ?? { from: at ?? shown.from, to: (at ?? shown.from) + step };
        return {
          window: clampWindow({ from: base.from, to: Math.max(base.from + step, base.to + delta) }, endNs),
          at: undefined,
        };
      }
      if (window) return { window: panWindow(window, delta, endNs) };
      return { at: Math.round(Math.min(endNs, Math.max(0, (at ?? shown.to) + delta))) };
    }
    case "+":
    case "=":
      return { shown: zoomWindow(shown, middle, 0.5, endNs) };
    case "-":
      return { shown: zoomWindow(shown, middle, 2, endNs) };
    case "0":
      return { shown: undefined };
    case "PageUp":
    case "PageDown": {
      const part = (shown.to - shown.from) * (key === "PageUp" ? -PAGE : PAGE);
      return { shown: panWindow(shown, part, endNs) };
    }
    case "A":
      return { a: Math.round(at ?? window?.from ?? shown.from), b: state.b ?? endNs };
    case "B":
      return { a: state.a ?? 0, b: Math.round(at ?? window?.to ?? shown.to) };
    case "Escape":
      return window || at !== undefined ? { window: undefined, at: undefined } : undefined;
    default:
      return undefined;
  }
}

/** Shows less or more about an instant, or moves sideways. */
export function wheelChange(shown: Window, about: number, deltaX: number, deltaY: number, endNs: number): Window {
  if (Math.abs(deltaX) > Math.abs(deltaY)) {
    return panWindow(shown, ((shown.to - shown.from) * deltaX) / 800, endNs);
  }
  return zoomWindow(shown, about, Math.exp(Math.max(-300, Math.min(300, deltaY)) / 500), endNs);
}

/** `1.20 s – 3.40 s`. */
export function windowText(window: Window): string {
  const step = Math.max(1, (window.to - window.from) / 100);
  return `${formatInstant(window.from, step, window.to)} – ${formatInstant(window.to, step)}`;
}

/** Names of instants this close to the right edge stand on the left of their line. */
const EDGE = 80;
/** A name in fewer pixels cannot be read. */
export const LEAST_ROOM = 26;
/** The longest name, and what a letter and the margins take: names need not be measured for this. */
const LONGEST = 160;
const LETTER = 6.5;
const MARGINS = 9;

export function isTurned(scale: Scale, x: number): boolean {
  return x > scale.left + scale.width - EDGE;
}

/** Pixels that each mark's name has before it would stand on its neighbour's; marks are in the order of time. */
export function roomsOf(scale: Scale, marks: readonly { t_ns: number; label: string }[]): number[] {
  const xs = marks.map((mark) => toPixel(scale, mark.t_ns));
  let taken = Number.NEGATIVE_INFINITY;
  return marks.map(({ label }, i) => {
    const x = xs[i] ?? 0;
    const wanted = Math.min(LONGEST, label.length * LETTER + MARGINS);
    if (isTurned(scale, x)) {
      const room = Math.min(wanted, x - taken);
      if (room >= LEAST_ROOM) taken = x;
      return room;
    }
    const room = x < taken ? 0 : Math.min(wanted, (xs[i + 1] ?? Number.POSITIVE_INFINITY) - x);
    if (room >= LEAST_ROOM) taken = x + room;
    return room;
  });
}
