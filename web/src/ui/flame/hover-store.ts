// What is under the pointer, apart from any view's own state: another frame draws the tooltip and the bar below anew, a
// movement within a frame only moves the tooltip.
import { useState } from "react";
import type { FlameNode } from "../../lib/flame-tree.ts";
import type { Point } from "./renderer.ts";

export class HoverStore {
  private node: FlameNode | undefined;
  private at: Point = { x: 0, y: 0 };
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
    if (changed) for (const listener of this.nodeListeners) listener();
    for (const listener of this.moveListeners) listener(at);
  };

  readonly clear = (): void => this.set(undefined, { x: 0, y: 0 });
}

export function useHoverStore(): HoverStore {
  const [store] = useState(() => new HoverStore());
  return store;
}
