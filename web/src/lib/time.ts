// Times and windows of a recording. Everything is whole nanoseconds since its start.

/** A half-open window `[from, to)`. */
export interface Window {
  from: number;
  to: number;
}

const UNITS: Record<string, number> = { ns: 0, us: 3, ms: 6, s: 9 };

/** Exact and short: `1500000000` → `1.5s`. */
export function writeTime(ns: number): string {
  const whole = Math.floor(ns / 1e9);
  const rest = String(ns % 1e9)
    .padStart(9, "0")
    .replace(/0+$/, "");
  return rest === "" ? `${whole}s` : `${whole}.${rest}s`;
}

/** Reads what {@link writeTime} writes, and `200ms`, `3us`, `17ns`, `1234`; `undefined` for anything else. */
export function readTime(text: string): number | undefined {
  const match = /^(\d{1,12})(?:\.(\d{1,9}))?(ns|us|ms|s)?$/.exec(text.trim());
  if (!match) return undefined;
  const digits = UNITS[match[3] ?? "ns"] ?? 0;
  const fraction = (match[2] ?? "").slice(0, digits).padEnd(digits, "0");
  const ns = Number(`${match[1]}${fraction}`);
  return Number.isSafeInteger(ns) ? ns : undefined;
}

/** `1s-2.5s`. */
export function writeWindow(window: Window): string {
  return `${writeTime(window.from)}-${writeTime(window.to)}`;
}

/** Reads what {@link writeWindow} writes; a window has a positive length. */
export function readWindow(text: string): Window | undefined {
  const [first, second, more] = text.split("-");
  if (first === undefined || second === undefined || more !== undefined) return undefined;
  const from = readTime(first);
  const to = readTime(second);
  return from === undefined || to === undefined || to <= from ? undefined : { from, to };
}

/** The window with whole nanoseconds, inside `[0, end]`, at least `minimum` long. */
export function clampWindow(window: Window, end: number, minimum = 1): Window {
  const length = Math.min(end, Math.max(minimum, Math.round(window.to - window.from)));
  const from = Math.round(Math.min(Math.max(0, window.from), Math.max(0, end - length)));
  return { from, to: Math.min(end, from + length) };
}

/** Zooms about an instant: a factor below 1 shows less. */
export function zoomWindow(window: Window, about: number, factor: number, end: number): Window {
  const from = about - (about - window.from) * factor;
  const to = about + (window.to - about) * factor;
  return clampWindow({ from: Math.max(0, from), to: Math.min(end, to) }, end, 1000);
}

/** Moves the window by `delta`, keeping its length. */
export function panWindow(window: Window, delta: number, end: number): Window {
  return clampWindow({ from: window.from + delta, to: window.to + delta }, end);
}

export function length(window: Window): number {
  return window.to - window.from;
}

export function sameWindow(a: Window | undefined, b: Window | undefined): boolean {
  return a?.from === b?.from && a?.to === b?.to;
}
