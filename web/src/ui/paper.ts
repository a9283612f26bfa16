// Whether the page is laid out for paper, and word of it at the moment at which it is.
import { flushSync } from "react-dom";

const media = window.matchMedia("print");
/** Firefox copies the page after `beforeprint` and lays the copy out for paper: no script sees it. */
const isCopied = CSS.supports("-moz-appearance", "none");
/** What is drawn for that copy is as wide as A4 between its margins: Firefox does not say which paper it is. */
const SHEET = "718px";

let copying = false;
const listeners = new Set<() => void>();
const painters = new Set<() => void>();

/** True from the moment at which the browser prints until it has; known before boxes are measured for paper. */
export function isPaper(): boolean {
  return media.matches || copying;
}

/** Calls `changed` before the page is laid out for paper, and after; the listeners of before are called first. */
export function listenForPaper(changed: () => void): () => void {
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

media.addEventListener("change", tell);
if (isCopied) {
  window.addEventListener("beforeprint", () => copy(true));
  window.addEventListener("afterprint", () => copy(false));
}
