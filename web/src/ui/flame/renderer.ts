// The seam between the flame graph view and whatever draws it.
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

export interface FlameHandlers {
  onZoom: (node: FlameNode) => void;
  onHover: (node: FlameNode | undefined, at: { x: number; y: number }) => void;
  onMenu: (node: FlameNode, at: { x: number; y: number }) => void;
}

export interface FlameRenderer {
  /** Shows a tree. */
  render: (root: FlameNode, look: FlameLook, marks: FlameMarks) => void;
  /** Changes what is lit in the tree that is shown. */
  mark: (marks: FlameMarks) => void;
  /** Lights every frame of a function. */
  light: (name: string | undefined) => void;
  resize: (width: number) => void;
  /** The element of a row, to be scrolled to or to open a menu at. */
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
