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
  private readonly animation: Animation;
  private readonly timer: ReturnType<typeof setTimeout>;
  /** What the picture of where it was shows. */
  behind: FlameView;

  /**
   * Begins at once: moves the box of both pictures, in which the one from before is where it is as seen from the other.
   * One box is one animation, and one layer for the compositor to move. `done` is called at its end, and not if it is
   * stopped before.
   */
  constructor(
    from: FlameView,
    to: FlameView,
    before: { view: FlameView; canvas: HTMLElement },
    box: HTMLElement,
    width: number,
    done: () => void,
  ) {
    this.from = from;
    this.to = to;
    this.behind = before.view;
    const { style } = before.canvas;
    style.transform = transformOf(before.view, to, width);
    // The one that shows more of less is above the other.
    style.zIndex = before.view.right - before.view.left < to.right - to.left ? "1" : "0";
    const way = Array.from({ length: STEPS + 1 }, (_, step) => ({
      transform: transformOf(to, between(from, to, eased(step / STEPS)), width),
      offset: ((step / STEPS) * GLIDE_MS) / HOLD_MS,
    }));
    this.animation = box.animate([...way, { ...way.at(-1), offset: 1 }], HOLD_MS);
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

  stop(): void {
    clearTimeout(this.timer);
    this.animation.cancel();
  }
}
