// The pointer over a flame graph: hover, click, menu, drag in both directions, wheel, and the small picture above it.
import type { FlameNode } from "../../lib/flame-tree.ts";
import type { Point } from "./renderer.ts";

/** Positions are in pixels of the stage, but for `at`, which is of the window. */
export interface FlameGestures {
  frameAt: (x: number, y: number) => FlameNode | undefined;
  isMap: (y: number) => boolean;
  hover: (node: FlameNode | undefined, at: Point) => void;
  /** `keeps`: with Shift, so that the frame's numbers stay on the screen. */
  click: (node: FlameNode, at: Point, keeps: boolean) => void;
  menu: (node: FlameNode, at: Point) => void;
  drag: (right: number, down: number) => void;
  /** Below 1 zooms in, about a position. */
  scale: (factor: number, x: number) => void;
  slide: (right: number) => void;
  /** The middle of what is seen goes to this position of the small picture. */
  moveMap: (x: number) => void;
}

/** A pointer that moved less was a click. */
const CLICK_PX = 4;

/** Listens until the returned function is called. */
export function listen(stage: HTMLElement, gestures: FlameGestures): () => void {
  const stop = new AbortController();
  const { signal } = stop;
  let held: { x: number; y: number; moved: boolean; map: boolean } | undefined;
  const place = (event: MouseEvent): Point => {
    const box = stage.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const window_ = (event: MouseEvent): Point => ({ x: event.clientX, y: event.clientY });

  stage.addEventListener(
    "pointerdown",
    (event) => {
      if (event.button !== 0) return;
      const { x, y } = place(event);
      held = { x: event.clientX, y: event.clientY, moved: false, map: gestures.isMap(y) };
      if (held.map) {
        stage.setPointerCapture(event.pointerId);
        gestures.moveMap(x);
      }
    },
    { signal },
  );
  stage.addEventListener(
    "pointermove",
    (event) => {
      const { x, y } = place(event);
      if (!held) {
        gestures.hover(gestures.isMap(y) ? undefined : gestures.frameAt(x, y), window_(event));
        return;
      }
      if (held.map) {
        gestures.moveMap(x);
        return;
      }
      const right = event.clientX - held.x;
      const down = event.clientY - held.y;
      if (!held.moved && Math.hypot(right, down) < CLICK_PX) return;
      if (!held.moved) {
        stage.setPointerCapture(event.pointerId);
        gestures.hover(undefined, window_(event));
      }
      held = { ...held, x: event.clientX, y: event.clientY, moved: true };
      gestures.drag(right, event.pointerType === "touch" ? 0 : down);
    },
    { signal },
  );
  stage.addEventListener(
    "pointerup",
    (event) => {
      const was = held;
      held = undefined;
      if (!was || was.moved || was.map) return;
      const { x, y } = place(event);
      const node = gestures.frameAt(x, y);
      if (node) gestures.click(node, window_(event), event.shiftKey);
    },
    { signal },
  );
  stage.addEventListener("pointercancel", () => (held = undefined), { signal });
  stage.addEventListener("pointerleave", (event) => gestures.hover(undefined, window_(event)), { signal });
  stage.addEventListener(
    "contextmenu",
    (event) => {
      const { x, y } = place(event);
      const node = gestures.isMap(y) ? undefined : gestures.frameAt(x, y);
      if (!node) return;
      event.preventDefault();
      gestures.menu(node, window_(event));
    },
    { signal },
  );
  stage.addEventListener(
    "wheel",
    (event) => {
      const line = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        gestures.scale(1.0022 ** (event.deltaY * line), place(event).x);
        return;
      }
      const sideways = event.deltaX !== 0 ? event.deltaX : event.shiftKey ? event.deltaY : 0;
      if (sideways === 0) return;
      event.preventDefault();
      gestures.slide(sideways * line);
    },
    { signal, passive: false },
  );
  return () => stop.abort();
}
