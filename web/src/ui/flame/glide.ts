// How a graph gets from one view to another: the picture of where it was and that of where it goes are moved and
// scaled by the browser's compositor, so that nothing is drawn in between and the page is free for its user.
import { between, type FlameView } from "./layout.ts";

const GLIDE_MS = 170;
/** Keyframes: the browser goes straight from one to the next. */
const STEPS = 12;
/**
 * The last of them is held so long, and a timer ends it: towards an animation's own end browsers draw the page picture
 * by picture.
 */
const HOLD_MS = 60_000;
/** A picture that is magnified more shows nothing. */
const MOST_MAGNIFIED = 5000;

/** A picture: what it shows, and the canvases that it is on. */
export interface ShownPicture {
  view: FlameView;
  canvases: readonly HTMLElement[];
}

const eased = (t: number): number => 1 - (1 - t) ** 3;

/** Whether a way is short enough to be shown. */
export function canGlide(from: FlameView, to: FlameView): boolean {
  const factor = (to.right - to.left) / (from.right - from.left);
  return factor < MOST_MAGNIFIED && factor > 1 / MOST_MAGNIFIED;
}

/** Where a picture is, with its left edge at 0 and as wide as the graph, for somebody who looks at a view. */
export function transformOf(picture: FlameView, view: FlameView, width: number): string {
  const seen = view.right - view.left;
  const x = ((picture.left - view.left) / seen) * width;
  return `translateX(${x}px) scaleX(${(picture.right - picture.left) / seen})`;
}

/** The part of a view that a picture covers. */
export function covered(picture: FlameView, view: FlameView): number {
  const both = Math.min(picture.right, view.right) - Math.max(picture.left, view.left);
  return Math.max(0, both) / (view.right - view.left);
}

export class Glide {
  private from: FlameView;
  private to: FlameView;
  private readonly began = performance.now();
  private readonly animations: Animation[] = [];
  private readonly old: Animation[] = [];
  private readonly timer: ReturnType<typeof setTimeout>;
  /** What the picture of where it was shows. */
  behind: FlameView;

  /** Begins at once. `done` is called at its end, and not if it is stopped before. */
  constructor(from: FlameView, next: ShownPicture, before: ShownPicture, width: number, done: () => void) {
    this.from = from;
    this.to = next.view;
    this.behind = before.view;
    // The one that shows more of less is above the other.
    const isAbove = before.view.right - before.view.left < next.view.right - next.view.left;
    for (const canvas of before.canvases) canvas.style.zIndex = isAbove ? "1" : "0";
    for (const canvas of next.canvases) canvas.style.zIndex = "";
    const along = (picture: FlameView) => {
      const way = Array.from({ length: STEPS + 1 }, (_, step) => ({
        transform: transformOf(picture, between(from, next.view, eased(step / STEPS)), width),
        opacity: 1,
        offset: ((step / STEPS) * GLIDE_MS) / HOLD_MS,
      }));
      return [...way, { ...way.at(-1), offset: 1 }];
    };
    for (const [{ view, canvases }, list] of [
      [next, this.animations],
      [before, this.old],
    ] as const) {
      const keyframes = along(view);
      for (const canvas of canvases) list.push(canvas.animate(keyframes, HOLD_MS));
    }
    this.timer = setTimeout(() => {
      this.stop();
      done();
    }, GLIDE_MS);
  }

  /** What is seen now. */
  now(): FlameView {
    return between(this.from, this.to, eased(Math.min(1, (performance.now() - this.began) / GLIDE_MS)));
  }

  /** The same way in another tree, in which everything has moved alike. */
  carry(move: (view: FlameView) => FlameView): void {
    this.from = move(this.from);
    this.to = move(this.to);
    this.behind = move(this.behind);
  }

  /** The old picture is no more true. */
  forget(): void {
    for (const animation of this.old) animation.cancel();
  }

  stop(): void {
    clearTimeout(this.timer);
    this.forget();
    for (const animation of this.animations) animation.cancel();
  }
}
