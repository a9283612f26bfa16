// What is under the pointer, apart from any view's own state: another frame draws the tooltip and the bar below anew, a
// movement within a frame only moves the tooltip.
import { useState } from "react";
import type { FlameNode } from "../../lib/flame-tree.ts";
import type { Point } from "./renderer.ts";

export class HoverStore {
  private node: FlameNode | undefined;
  private at: Point = { x: 0, y: 0 };
  /** The picture with which what was cleared goes. */
  private leaves: number | undefined;
  private readonly nodeListeners = new Set<() => void>();
  private readonly moveListeners = new Set<(at: Point) => void>();

  readonly get = (): FlameNode | undefined => this.node;

  /** Where the pointer is. */
  readonly place = (): Point => this.at;

  /** Calls when another frame is under the pointer, until the returned function is called. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this.nodeListeners.add(listener);
    return () => this.nodeListeners.delete(listener);
  };

  readonly onMove = (listener: (at: Point) => void): (() => void) => {
    this.moveListeners.add(listener);
    return () => this.moveListeners.delete(listener);
  };

  readonly set = (node: FlameNode | undefined, at: Point): void => {
    const changed = node !== this.node;
    if (!changed && at.x === this.at.x && at.y === this.at.y) return;
    this.at = at;
    this.node = node;
    if (changed) this.tell();
    for (const listener of this.moveListeners) listener(at);
  };

  /** Forgets it. What shows it goes with the next picture, which costs less than to lay out the page before that. */
  readonly clear = (): void => {
    if (this.node === undefined) return;
    this.node = undefined;
    this.leaves ??= requestAnimationFrame(this.tell);
  };

  private readonly tell = (): void => {
    if (this.leaves !== undefined) cancelAnimationFrame(this.leaves);
    this.leaves = undefined;
    for (const listener of this.nodeListeners) listener();
  };
}

export function useHoverStore(): HoverStore {
  const [store] = useState(() => new HoverStore());
  return store;
}
