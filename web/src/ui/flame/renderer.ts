// The interface between the flame graph view and its renderers.
import type { FlameNode } from "../../lib/flame-tree.ts";

export interface FlameLook {
  /** Grows downwards from the root, like an icicle. */
  downwards: boolean;
  color: (node: FlameNode) => string;
  label: (node: FlameNode) => string;
  /** Spoken name. */
  description: (node: FlameNode) => string;
}

export interface FlameMarks {
  /** Rows that match the search; `undefined`: there is no search. */
  matches: ReadonlySet<number> | undefined;
  /** The selected function. */
  selectedName: string | undefined;
  /** The row that the keyboard is on. */
  activeRow: number | undefined;
}

export interface Point {
  x: number;
  y: number;
}

export interface FlameHandlers {
  onZoom: (node: FlameNode) => void;
  onHover: (node: FlameNode | undefined, at: Point) => void;
  onMenu: (node: FlameNode, at: Point) => void;
  /** Its numbers shall stay on the screen. */
  onPin?: ((node: FlameNode, at: Point) => void) | undefined;
  /** A way to another view has been shown to its end. */
  onArrive?: (() => void) | undefined;
}

export interface FlameRenderer {
  /** Shows a tree, from one of its frames on. */
  render: (root: FlameNode, zoom: FlameNode, look: FlameLook, marks: FlameMarks) => void;
  /** Goes to another frame of the tree that is shown; `false`: this cannot be done without drawing it anew. */
  zoomTo: (node: FlameNode) => boolean;
  /** Whether the way to another view is shown now, or will be. */
  moves: () => boolean;
  /** Changes what is lit in the tree that is shown. */
  mark: (marks: FlameMarks) => void;
  /** Lights every frame of a function. */
  light: (name: string | undefined) => void;
  resize: (width: number) => void;
  /** Moves by parts of what is seen, to the right and down. */
  pan: (right: number, down: number) => void;
  /** Shows less (below 1) or more of the width. */
  scale: (factor: number) => void;
  /** Moves as little as brings a frame into view. */
  reveal: (row: number) => void;
  /** The element of a row, to open a menu at. */
  element: (row: number) => Element | null;
  destroy: () => void;
}

/** `name` tells the elements of several graphs on one page apart. */
export type MakeFlameRenderer = (
  host: HTMLElement,
  name: string,
  width: number,
  handlers: FlameHandlers,
) => FlameRenderer;

/** The id of a row's element, for `aria-activedescendant`. */
export function rowElementId(name: string, row: number): string {
  return `${name}-${row}`;
}
