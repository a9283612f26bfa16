// The same tree as elements, for readers of screens and for whatever drives the page: an item for each frame with its
// role, level, place and spoken name, where the frame is drawn. Of a large tree the widest frames and all around the
// one that the keyboard is on; `aria-setsize` and `aria-posinset` say how many there are.

import type { FlameNode } from "../../lib/flame-tree.ts";
import { isChosen } from "../../lib/identity.ts";
import { shortName } from "../../lib/names.ts";
import { type FlameLayout, type FlameView, nodeAt, placeOf } from "./layout.ts";
import { type FlameLook, type FlameMarks, rowElementId } from "./renderer.ts";

/** Items at once. A smaller tree is there as a whole. */
const MOST = 100;
/** Neighbours of the active frame on each side. */
const AROUND = 20;
/** Items are for readers, not for the next picture: they wait until nothing changes for so long, nor moves. */
const AFTER_MS = 200;

interface Geometry {
  width: number;
  rows: number;
  rowHeight: number;
  downwards: boolean;
  /** Pixels above the first row. */
  top: number;
}

/** Items as they were when another tree came, and what they depend on. */
interface KeptItems {
  items: Map<number, HTMLElement>;
  byFunction: Map<string, HTMLElement[]>;
  parts: readonly HTMLElement[];
  look: FlameLook;
  marks: FlameMarks;
  lit: string | undefined;
  rowHeight: number | undefined;
}

const isSameLook = (a: FlameLook, b: FlameLook): boolean =>
  a.downwards === b.downwards && a.color === b.color && a.label === b.label && a.description === b.description;

export class AccessibleTree {
  /** Every way out of a zoom leads back to the same tree, whose items are still right. */
  private readonly kept = new WeakMap<FlameLayout, KeptItems>();
  private readonly box: HTMLElement;
  private readonly name: string;
  private items = new Map<number, HTMLElement>();
  private byFunction = new Map<string, HTMLElement[]>();
  private layout: FlameLayout | undefined;
  private look: FlameLook | undefined;
  private marks: FlameMarks = { matches: undefined, selectedName: undefined, activeRow: undefined };
  private lit: string | undefined;
  private geometry: Geometry | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** What all items are copies of. */
  private readonly blank = document.createElement("div");

  constructor(parent: HTMLElement, name: string) {
    this.name = name;
    this.blank.className = "frame";
    this.blank.setAttribute("role", "treeitem");
    this.blank.setAttribute("aria-selected", "false");
    this.box = document.createElement("div");
    this.box.className = "flame-items";
    this.box.setAttribute("role", "presentation");
    parent.append(this.box);
  }

  /** Another tree. */
  reset(layout: FlameLayout, look: FlameLook, marks: FlameMarks): void {
    this.keep();
    this.layout = layout;
    this.look = look;
    this.marks = marks;
    clearTimeout(this.timer);
    this.box.dataset["old"] = "";
    this.timer = setTimeout(() => this.settle(), AFTER_MS);
  }

  /** Makes now what waits: the graph has arrived where it goes, and the page is drawn anew for that. */
  settle(): void {
    clearTimeout(this.timer);
    if (this.box.dataset["old"] === undefined || (this.layout && this.recall(this.layout))) return;
    this.fill();
  }

  mark(marks: FlameMarks): void {
    const before = this.marks;
    const moved = marks.activeRow !== before.activeRow;
    this.marks = marks;
    // Where the keyboard is must be there at once: the focus refers to it.
    if (moved && marks.activeRow !== undefined && this.items.size > 0) this.addAround(marks.activeRow);
    if (marks.matches === before.matches && marks.selectedName === before.selectedName) {
      this.items.get(before.activeRow ?? -1)?.removeAttribute("data-active");
      this.items.get(marks.activeRow ?? -1)?.setAttribute("data-active", "");
      return;
    }
    for (const [row, item] of this.items) this.applyMarks(row, item);
  }

  light(name: string | undefined): void {
    for (const item of this.byFunction.get(this.lit ?? "") ?? []) item.removeAttribute("data-lit");
    this.lit = name;
    for (const item of this.byFunction.get(name ?? "") ?? []) item.setAttribute("data-lit", "");
  }

  /** Puts the items where the frames are drawn. */
  place(layout: FlameLayout, view: FlameView, geometry: Geometry): void {
    if (layout !== this.layout) return;
    const turned = this.geometry?.downwards !== geometry.downwards || this.geometry.rowHeight !== geometry.rowHeight;
    this.geometry = geometry;
    // A transform moves all of them without laying out any.
    // Browsers lose digits beyond some millions of pixels; what lies so far out cannot be seen.
    const scale = Math.min(3e7 / geometry.width, 1 / (view.right - view.left));
    const left = Math.max(-3e7, -view.left * scale * geometry.width);
    const { style } = this.box;
    style.width = `${geometry.width}px`;
    style.transform = `translateX(${left}px) scaleX(${scale})`;
    style.top = `${geometry.top}px`;
    style.bottom = "0";
    if (turned) for (const [row, item] of this.items) this.placeItem(row, item);
  }

  element(row: number): Element | null {
    if (!this.items.has(row)) this.addAround(row);
    return this.items.get(row) ?? null;
  }

  destroy(): void {
    clearTimeout(this.timer);
    this.box.remove();
  }

  private nodeOf(row: number): FlameNode | undefined {
    return this.layout && nodeAt(this.layout, row);
  }

  /** The widest frames from the root down, as many as there may be; callers always before what they call. */
  private fill(): void {
    if (!this.layout) return;
    const wanted = new Set(widest(this.layout));
    const { activeRow } = this.marks;
    if (activeRow !== undefined) for (const node of this.around(activeRow)) wanted.add(node.row);
    this.items = new Map();
    this.byFunction = new Map();
    // In the order of the document, which is how readers walk through it.
    const rows = [...wanted].sort((a, b) => a - b);
    const parts: HTMLElement[] = [];
    for (const row of rows) {
      const node = this.nodeOf(row);
      if (node) parts.push(this.make(node));
    }
    this.box.replaceChildren(...parts);
    delete this.box.dataset["old"];
  }

  /** Keeps the items for when their tree comes again; from now on nothing changes them. */
  private keep(): void {
    const { layout, look, items, byFunction, marks, lit, geometry } = this;
    if (!layout || !look || items.size === 0 || this.box.dataset["old"] !== undefined) return;
    const parts = [...items.values()];
    this.kept.set(layout, { items, byFunction, parts, look, marks, lit, rowHeight: geometry?.rowHeight });
    this.items = new Map();
    this.byFunction = new Map();
  }

  /** Takes the items that were made of a layout, if they look as they would now. */
  private recall(layout: FlameLayout): boolean {
    const kept = this.kept.get(layout);
    if (!kept || !this.look || !isSameLook(kept.look, this.look) || kept.rowHeight !== this.geometry?.rowHeight)
      return false;
    this.items = kept.items;
    this.byFunction = kept.byFunction;
    const { marks, lit } = this;
    this.marks = kept.marks;
    this.lit = kept.lit;
    this.box.replaceChildren(...kept.parts);
    delete this.box.dataset["old"];
    this.light(lit);
    this.mark(marks);
    return true;
  }

  /** A frame, its callers, its neighbours and what it calls. */
  private around(row: number): FlameNode[] {
    const node = this.nodeOf(row);
    if (!node) return [];
    const near = [node, ...node.children.slice(0, 2 * AROUND)];
    for (let above = node.parent; above; above = above.parent) near.push(above);
    const siblings = node.parent?.children ?? [];
    const at = siblings.indexOf(node);
    near.push(...siblings.slice(Math.max(0, at - AROUND), at + AROUND));
    return near.filter((one) => this.layout && placeOf(this.layout, one.row));
  }

  private addAround(row: number): void {
    const missing = this.around(row).filter((node) => !this.items.has(node.row));
    if (missing.length === 0) return;
    // No more than there may be: what was added for the last frame goes again in time.
    if (this.items.size + missing.length > 2 * MOST) {
      this.fill();
      return;
    }
    this.box.append(...missing.sort((a, b) => a.row - b.row).map((node) => this.make(node)));
  }

  private make(node: FlameNode): HTMLElement {
    const item = this.blank.cloneNode() as HTMLElement;
    const { frame, children, row } = node;
    const siblings = node.parent?.children ?? [node];
    item.id = rowElementId(this.name, row);
    item.setAttribute("aria-level", String(node.depth + 1));
    item.setAttribute("aria-setsize", String(siblings.length));
    item.setAttribute("aria-posinset", String(siblings.indexOf(node) + 1));
    if (children.length > 0) item.setAttribute("aria-expanded", "true");
    if (this.look) {
      const label = this.look.label(node);
      item.setAttribute("aria-label", this.look.description(node));
      item.setAttribute("data-name", shortName(frame?.name ?? label, 300));
      item.setAttribute("data-fill", this.look.color(node));
      // No text in it: nobody sees it, readers say the name above, and its layout costs more than all the rest.
      item.setAttribute("data-written", shortName(label, 80));
    }
    if (frame) {
      item.setAttribute("data-function", frame.name);
      const same = this.byFunction.get(frame.name);
      if (same) same.push(item);
      else this.byFunction.set(frame.name, [item]);
    }
    if (node.folded > 0) item.setAttribute("data-folded", "");
    this.items.set(row, item);
    this.placeItem(row, item);
    // It has no marks yet: most items get none.
    const { matches, selectedName, activeRow } = this.marks;
    const isLit = frame !== undefined && frame.name === this.lit;
    if (matches || row === activeRow || isLit || isChosen(frame, selectedName)) this.applyMarks(row, item);
    return item;
  }

  private placeItem(row: number, item: HTMLElement): void {
    const place = this.layout && placeOf(this.layout, row);
    const level = place && this.layout?.levels[place.level];
    if (!place || !level || !this.geometry) return;
    const { rowHeight, downwards } = this.geometry;
    const left = level.x0[place.index] ?? 0;
    const right = level.x1[place.index] ?? 0;
    const edge = downwards ? "top" : "bottom";
    item.style.cssText = `left:${left * 100}%;width:${(right - left) * 100}%;${edge}:${place.level * rowHeight}px`;
  }

  private applyMarks(row: number, item: HTMLElement): void {
    const frame = this.nodeOf(row)?.frame;
    const hit = this.marks.matches?.has(row);
    const selected = isChosen(frame, this.marks.selectedName);
    item.toggleAttribute("data-match", hit === true);
    item.toggleAttribute("data-dim", hit === false && !selected);
    item.toggleAttribute("data-active", row === this.marks.activeRow);
    item.toggleAttribute("data-lit", this.lit !== undefined && frame?.name === this.lit);
    item.toggleAttribute("data-selected", selected);
    item.setAttribute("aria-selected", String(selected));
  }
}

/** The weight of the `most`-th widest frame, found with a small heap: nearly all frames are compared once. */
function leastOf(layout: FlameLayout, most: number): number {
  const heap = new Float64Array(most);
  for (const level of layout.levels) {
    for (const { weight } of level.nodes) {
      if (weight <= (heap[0] ?? 0)) continue;
      let at = 0;
      for (;;) {
        let next = 2 * at + 1;
        if (next >= most) break;
        if (next + 1 < most && (heap[next + 1] ?? 0) < (heap[next] ?? 0)) next += 1;
        if ((heap[next] ?? 0) >= weight) break;
        heap[at] = heap[next] ?? 0;
        at = next;
      }
      heap[at] = weight;
    }
  }
  return heap[0] ?? 0;
}

/** Kept, since every way out of a zoom leads back to the same tree. */
const widestOf = new WeakMap<FlameLayout, ReadonlySet<number>>();

/** Rows of the widest frames, as many as there may be; of those of one width the outermost. */
function widest(layout: FlameLayout): ReadonlySet<number> {
  const known = widestOf.get(layout);
  if (known) return known;
  const rows = new Set<number>();
  const least = layout.count > MOST ? leastOf(layout, MOST) : 0;
  for (const level of layout.levels) {
    for (const node of level.nodes) if (node.weight > least && rows.size < MOST) rows.add(node.row);
  }
  for (const level of layout.levels) {
    for (const node of level.nodes) if (node.weight === least && rows.size < MOST) rows.add(node.row);
  }
  widestOf.set(layout, rows);
  return rows;
}
