// The canvases of a graph's frames: the picture that is shown, behind it the one from before, which is seen while the
// graph goes from one view to another, and one that is kept, since every zoom has a way back. What moves with them is in
// the same box.
import { canGlide, covered, Glide } from "./glide.ts";
import { type FlameView, WHOLE } from "./layout.ts";

type CanvasLayer = [HTMLCanvasElement, CanvasRenderingContext2D];

export function layer(parent: HTMLElement, className: string): CanvasLayer {
  const canvas = document.createElement("canvas");
  canvas.className = className;
  canvas.setAttribute("aria-hidden", "true");
  parent.append(canvas);
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser gives no canvas");
  return [canvas, context];
}

export class Pictures {
  private behind: CanvasLayer;
  private front: CanvasLayer;
  private spare: CanvasLayer;
  /** All that a picture depends on. */
  private readonly states = new WeakMap<HTMLCanvasElement, readonly unknown[]>();
  /** What the picture from before shows. */
  private kept: FlameView = WHOLE;
  /** The next picture is to be approached from here. */
  private start: FlameView | undefined;
  private from: FlameView = WHOLE;
  private motion: Glide | undefined;
  private readonly arrived: () => void;
  /** What the picture shows. */
  view: FlameView = WHOLE;
  /** What moves: both pictures, and whatever is drawn above them. */
  readonly box = document.createElement("div");

  /** `arrived` is called when a way has been shown to its end. */
  constructor(parent: HTMLElement, arrived: () => void) {
    this.arrived = arrived;
    this.box.className = "flame-moving";
    this.box.setAttribute("role", "presentation");
    parent.append(this.box);
    this.behind = layer(this.box, "flame-before");
    this.spare = layer(this.box, "flame-kept");
    this.front = layer(this.box, "flame-frames");
    this.behind[0].hidden = true;
    this.spare[0].hidden = true;
  }

  get canvases(): HTMLCanvasElement[] {
    return [this.behind[0], this.spare[0], this.front[0]];
  }

  get canvas(): HTMLCanvasElement {
    return this.front[0];
  }

  get context(): CanvasRenderingContext2D {
    return this.front[1];
  }

  /** Sets the font of all; a context to measure it with. */
  write(font: string): CanvasRenderingContext2D {
    for (const [, context] of [this.front, this.behind, this.spare]) context.font = font;
    return this.context;
  }

  /** Whether the graph is on its way to a view. */
  get moves(): boolean {
    return this.start !== undefined || this.motion !== undefined;
  }

  /** What is seen now, on the way to a view. */
  seen(goal: FlameView): FlameView {
    return this.start ?? this.motion?.now() ?? goal;
  }

  /** Lets the next picture be approached from what is seen now, if the way is not too long. */
  approach(goal: FlameView, next: FlameView): boolean {
    const from = this.seen(goal);
    if (!canGlide(from, next)) return false;
    this.start = from;
    return true;
  }

  /** Before the next picture is drawn: keeps the one of two that shows more of what is seen, if the way is to be shown. */
  turn(): boolean {
    if (!this.start) return false;
    this.from = this.start;
    const older = this.motion?.behind;
    this.jump();
    if (older && covered(older, this.from) > covered(this.view, this.from)) {
      this.kept = older;
      return true;
    }
    this.kept = this.view;
    // The one that was not shown for longest is drawn on next.
    [this.front, this.behind, this.spare] = [this.spare, this.front, this.behind];
    this.name();
    return true;
  }

  /** Shows the picture that was drawn of this state, if it is still there. */
  recall(state: readonly unknown[]): boolean {
    const isKept = ([canvas]: CanvasLayer) => this.states.get(canvas)?.every((part, i) => part === state[i]) === true;
    if (isKept(this.front)) return true;
    if (!isKept(this.spare)) return false;
    [this.front, this.spare] = [this.spare, this.front];
    this.name();
    return true;
  }

  /** What the picture depends on that is drawn now. */
  note(state: readonly unknown[]): void {
    this.states.set(this.front[0], state);
  }

  private name(): void {
    this.front[0].className = "flame-frames";
    this.behind[0].className = "flame-before";
    this.spare[0].className = "flame-kept";
    this.spare[0].hidden = true;
    const [canvas] = this.front;
    canvas.hidden = false;
    canvas.style.transform = "";
    canvas.style.zIndex = "";
  }

  /** Goes to the picture that was drawn. */
  glide(width: number): void {
    const [canvas] = this.behind;
    canvas.hidden = false;
    this.motion = new Glide(this.from, this.view, { view: this.kept, canvas }, this.box, width, () => {
      this.motion = undefined;
      this.hideOlder();
      this.arrived();
    });
  }

  /** The same way in another tree. */
  carry(move: (view: FlameView) => FlameView): void {
    this.view = move(this.view);
    if (this.start) this.start = move(this.start);
    this.motion?.carry(move);
  }

  /** The picture from before is of other rows. */
  forget(): void {
    if (this.start) this.jump();
    this.hideOlder();
  }

  /** The next picture is shown at once. */
  jump(): void {
    this.start = undefined;
    this.motion?.stop();
    this.motion = undefined;
    this.hideOlder();
  }

  /** With every picture of the page browsers copy each canvas that is there, whether it has changed or not. */
  private hideOlder(): void {
    this.behind[0].hidden = true;
  }
}
