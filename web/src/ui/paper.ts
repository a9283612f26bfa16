// Whether the page is laid out for paper, and word of it at the moment at which it is.
import { flushSync } from "react-dom";

/** What is drawn for Firefox's copy is as wide as A4 between its margins: it does not say which paper it is. */
const SHEET = "718px";

let watching = false;
let copying = false;
const listeners = new Set<() => void>();
const painters = new Set<() => void>();

/** True from the moment at which the browser prints until it has; known before boxes are measured for paper. */
export function isPaper(): boolean {
  return matchMedia("print").matches || copying;
}

/** Calls `changed` before the page is laid out for paper, and after; the listeners of before are called first. */
export function listenForPaper(changed: () => void): () => void {
  watch();
  listeners.add(changed);
  return () => listeners.delete(changed);
}

/** Calls `paint` when all has been laid out for a copy: what is drawn in the next picture otherwise is drawn then. */
export function paintForPaper(paint: () => void): () => void {
  painters.add(paint);
  return () => painters.delete(paint);
}

function tell(): void {
  for (const listener of [...listeners]) listener();
}

function copy(next: boolean): void {
  copying = next;
  document.documentElement.style.width = next ? SHEET : "";
  // What is not drawn when the event is over is not in the copy.
  flushSync(tell);
  for (const paint of [...painters]) paint();
}

function watch(): void {
  if (watching) return;
  watching = true;
  matchMedia("print").addEventListener("change", tell);
  // Firefox copies the page after `beforeprint` and lays the copy out for paper: no script sees it.
  if (!("mozInnerScreenX" in window)) return;
  window.addEventListener("beforeprint", () => copy(true));
  window.addEventListener("afterprint", () => copy(false));
}
