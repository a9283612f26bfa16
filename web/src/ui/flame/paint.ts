// Draws what is seen of a laid-out tree: boxes with their text on one canvas, what is lit on another above it.
import type { FlameFrame } from "../../api/types.ts";
import type { FlameNode } from "../../lib/flame-tree.ts";
import type { TextFitter } from "./box-text.ts";
import { type FlameLayout, type FlameView, firstEndingAfter, functionsOf, placeOf } from "./layout.ts";
import { pixelOf, type Raster, thinned } from "./raster.ts";
import type { FlameMarks } from "./renderer.ts";

export const ROW_HEIGHT = 19;
/** Frames narrower than this have no text. */
const TEXT_PX = 22;
/** Frames that are narrower share a mark with their neighbours. */
const SPECK_PX = 0.5;
const DIMMED = 0.35;
/** Beyond the edges, so that a frame that goes on has no line there. */
const BEYOND_PX = 2;

/** Colours of text and lines. */
export interface Ink {
  text: string;
  muted: string;
  match: string;
  accent: string;
  strong: string;
  surface: string;
}

/** What the style sheet says of them. */
export function inkIn(of: (token: string) => string): Ink {
  return {
    text: of("--frame-ink"),
    muted: of("--text-muted"),
    match: of("--match"),
    accent: of("--accent"),
    strong: of("--text"),
    surface: of("--surface"),
  };
}

export interface Scene {
  layout: FlameLayout;
  view: FlameView;
  width: number;
  height: number;
  /** Levels that can be seen. */
  first: number;
  last: number;
  /** Pixels from the canvas's upper edge. */
  levelTop: (depth: number) => number;
  marks: FlameMarks;
  /** Whether a node's function is the selected one. */
  isSelected: (node: FlameNode) => boolean;
  /** The frames of the selected function. */
  selectedFrames: () => ReadonlySet<FlameFrame>;
  /** Rows of frames that call the one that is zoomed to. */
  outer: ReadonlySet<number>;
  colorOf: (node: FlameNode) => string;
  /** The colours as far as they are known, level by level; 0: not yet. */
  pixels: Uint32Array[];
  /** Pixels of the screen for one of the page. */
  ratio: number;
  labelOf: (node: FlameNode) => string;
  ink: Ink;
}

interface Text {
  node: FlameNode;
  x: number;
  y: number;
  room: number;
  dim: boolean;
}

/** Boxes are pixels, outlines and text are drawn over them. */
export function paintFrames(
  context: CanvasRenderingContext2D,
  raster: Raster,
  scene: Scene,
  fitter: TextFitter | undefined,
): void {
  const { layout, view, width, marks, ink, pixels, ratio } = scene;
  const { canvas } = context;
  raster.begin(canvas.width, canvas.height);
  const { line } = raster;
  const scale = width / (view.right - view.left);
  const gap = Math.max(1, Math.round(ratio));
  const { matches } = marks;
  const plain = matches === undefined && scene.outer.size === 0;
  const outlines: [x: number, y: number, width: number][] = [];
  const texts: Text[] = [];
  for (let depth = scene.first; depth <= scene.last; depth += 1) {
    const level = layout.levels[depth];
    const colors = pixels[depth];
    if (!level || !colors) continue;
    const y = scene.levelTop(depth);
    let reached = Number.NEGATIVE_INFINITY;
    for (let i = firstEndingAfter(level, view.left); i < level.nodes.length; i += 1) {
      const from = ((level.x0[i] ?? 0) - view.left) * scale;
      if (from >= width) break;
      const to = ((level.x1[i] ?? 0) - view.left) * scale;
      if (to - from < SPECK_PX && to < reached + SPECK_PX && matches === undefined) continue;
      const node = level.nodes[i];
      if (!node) continue;
      const isMatch = matches?.has(node.row) === true;
      if (to - from < SPECK_PX && to < reached + SPECK_PX && !isMatch) continue;
      const x = Math.max(from, -BEYOND_PX);
      const end = Math.min(to, width + BEYOND_PX);
      reached = Math.max(x + SPECK_PX, end);
      let pixel = colors[i] ?? 0;
      if (pixel === 0) {
        pixel = pixelOf(scene.colorOf(node));
        colors[i] = pixel;
      }
      const dim =
        !plain && ((matches !== undefined && !isMatch && !scene.isSelected(node)) || scene.outer.has(node.row));
      const first = Math.round(x * ratio);
      const last = Math.round(end * ratio) - (to - from > 3 ? gap : 0);
      line.fill(dim ? thinned(pixel, DIMMED) : pixel, Math.max(0, first), Math.max(last, first + 1));
      if (isMatch && end - x > 2) outlines.push([x, y, end - x - 1]);
      if (to - from < TEXT_PX) continue;
      // Of a frame that begins further left the text is where it can be read.
      const start = Math.max(x, 0);
      texts.push({ node, x: start + 4, y, room: Math.min(end, width) - start - 7, dim });
    }
    raster.row(Math.round(y * ratio), Math.round((y + ROW_HEIGHT) * ratio) - gap);
  }
  raster.show(context);
  context.strokeStyle = ink.match;
  context.lineWidth = 1.6;
  for (const [x, y, w] of outlines) context.strokeRect(x + 0.8, y + 0.8, w - 1.6, ROW_HEIGHT - 2.6);
  context.textBaseline = "middle";
  let style = "";
  for (const { node, x, y, room, dim } of texts) {
    const text = fitter?.fit(scene.labelOf(node), room) ?? "";
    if (text === "") continue;
    const next = node.folded > 0 || dim ? ink.muted : ink.text;
    if (next !== style) context.fillStyle = next;
    style = next;
    context.fillText(text, x, y + ROW_HEIGHT / 2);
  }
}

interface Lit {
  /** Name of the function that is pointed at anywhere on the page. */
  lit: string | undefined;
  hovered: FlameNode | undefined;
  /** The frame that the keyboard is on. */
  active: FlameNode | undefined;
}

/** A line about what is seen of a frame. */
interface Outline {
  x: number;
  y: number;
  width: number;
  color: string;
  thick: number;
}

/** What is lit, of the levels that can be seen. */
export function outlinesOf(scene: Scene, { lit, hovered, active }: Lit): Outline[] {
  const { layout, ink } = scene;
  const outlines: Outline[] = [];
  const index = functionsOf(layout);
  const add = (node: FlameNode, color: string, thick: number) => {
    const outline = outlineOf(scene, node, color, thick);
    if (outline) outlines.push(outline);
  };
  const addAll = (frame: FlameFrame, color: string, thick: number) => {
    for (const node of index.byFrame.get(frame) ?? []) add(node, color, thick);
  };
  const chosen = scene.selectedFrames();
  for (const frame of (lit !== undefined && index.byName.get(lit)) || [])
    if (!chosen.has(frame)) addAll(frame, ink.strong, 1.2);
  for (const frame of chosen) addAll(frame, ink.accent, 2);
  if (hovered) add(hovered, ink.strong, 1.5);
  if (active) add(active, ink.strong, 2);
  return outlines;
}

function outlineOf(
  { layout, view, width, first, last, levelTop }: Scene,
  node: FlameNode,
  color: string,
  thick: number,
): Outline | undefined {
  const place = placeOf(layout, node.row);
  const level = place && layout.levels[place.level];
  if (!place || !level || place.level < first || place.level > last) return undefined;
  const scale = width / (view.right - view.left);
  const from = ((level.x0[place.index] ?? 0) - view.left) * scale;
  const to = ((level.x1[place.index] ?? 0) - view.left) * scale;
  // What is narrower than its outline is not seen under it.
  if (to < 0 || from > width || to - from < 1) return undefined;
  const x = Math.max(from, -BEYOND_PX);
  return { x, y: levelTop(place.level), width: Math.min(to, width + BEYOND_PX) - x, color, thick };
}

/** Draws them on a canvas that is as high as they need: browsers copy all of it with every picture of the page. */
export function paintOutlines(context: CanvasRenderingContext2D, outlines: readonly Outline[], ratio: number): void {
  let top = Number.POSITIVE_INFINITY;
  let bottom = Number.NEGATIVE_INFINITY;
  for (const { y } of outlines) {
    top = Math.min(top, Math.floor(y * ratio));
    bottom = Math.max(bottom, Math.ceil((y + ROW_HEIGHT) * ratio));
  }
  const { canvas } = context;
  const height = bottom - top;
  if (canvas.height === height) {
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, height);
  } else {
    // Makes a new one: no more often than it must be.
    canvas.height = height;
  }
  canvas.style.height = `${height / ratio}px`;
  canvas.style.transform = `translateY(${top / ratio}px)`;
  context.setTransform(ratio, 0, 0, ratio, 0, -top);
  for (const { x, y, width, color, thick } of outlines) {
    context.strokeStyle = color;
    context.lineWidth = thick;
    context.strokeRect(x + thick / 2, y + thick / 2, Math.max(1, width - 1 - thick), ROW_HEIGHT - 1 - thick);
  }
}
