// The whole graph in a strip, with a frame about what is seen of it.
import type { FlameNode } from "../../lib/flame-tree.ts";
import type { FlameLayout, FlameView, Level } from "./layout.ts";
import { pixelOf, Raster } from "./raster.ts";

export const MINIMAP_HEIGHT = 36;
const INSET = 2;

interface MinimapLook {
  view: FlameView;
  width: number;
  colorOf: (node: FlameNode) => string;
  /** The colours as far as they are known, level by level; 0: not yet. */
  pixels: Uint32Array[];
  downwards: boolean;
  ink: { strong: string; surface: string; muted: string };
}

/** Levels that have less of the width below them are not in the picture: a deep recursion would take its height. */
const LEAST_WIDTH = 0.01;

/** How many levels are in the picture. */
export function mappedLevels({ levels }: FlameLayout): number {
  const isWide = ({ x0, x1 }: Level) => x1.reduce((sum, end, i) => sum + end - (x0[i] ?? 0), 0) >= LEAST_WIDTH;
  return levels.findLastIndex(isWide) + 1;
}

/** The picture without its frame. */
interface Strip {
  raster: Raster;
  /** All that it depends on. */
  of: readonly unknown[];
}

/** Kept for each layout: every way out of a zoom leads back to the same tree. */
const pictures = new WeakMap<FlameLayout, Strip>();

export function drawMinimap(context: CanvasRenderingContext2D, layout: FlameLayout, look: MinimapLook): void {
  const { view, width, ink } = look;
  const { canvas } = context;
  if (width <= 0) return;
  const of = [look.pixels, look.downwards, canvas.width, canvas.height, width];
  let picture = pictures.get(layout);
  if (!picture || of.some((part, i) => part !== picture?.of[i])) {
    picture = { raster: new Raster(), of };
    pictures.set(layout, picture);
    paint(picture.raster, canvas, layout, look);
  }
  // As large as the canvas: nothing from before is left.
  picture.raster.show(context);
  context.fillStyle = ink.muted;
  context.globalAlpha = 0.35;
  context.fillRect(0, MINIMAP_HEIGHT - INSET, width, 1);
  context.globalAlpha = 1;
  const left = view.left * width;
  const right = Math.max(left + 2, view.right * width);
  if (view.right - view.left >= 1 - 1e-12) return;
  context.globalAlpha = 0.72;
  context.fillStyle = ink.surface;
  context.fillRect(0, 0, left, MINIMAP_HEIGHT);
  context.fillRect(right, 0, width - right, MINIMAP_HEIGHT);
  context.globalAlpha = 1;
  context.strokeStyle = ink.strong;
  context.lineWidth = 1.5;
  context.strokeRect(left + 0.75, 0.75, Math.max(1, right - left - 1.5), MINIMAP_HEIGHT - INSET - 1.5);
}

function paint(raster: Raster, size: { width: number; height: number }, layout: FlameLayout, look: MinimapLook): void {
  const { colorOf, pixels, downwards } = look;
  const ratio = size.width / look.width;
  const room = (MINIMAP_HEIGHT - INSET - 1) * ratio;
  const levels = layout.levels.slice(0, mappedLevels(layout));
  const row = Math.min(4 * ratio, room / levels.length);
  raster.begin(size.width, size.height);
  const { line } = raster;
  let bottom = 0;
  for (const [depth, level] of levels.entries()) {
    // Rows thinner than a pixel share one: the outermost is seen.
    const next = Math.max(bottom, Math.round((depth + 1) * row));
    if (next === bottom) continue;
    const colors = pixels[depth];
    let reached = 0;
    for (let i = 0; i < level.nodes.length; i += 1) {
      const to = (level.x1[i] ?? 0) * size.width;
      if (to < reached + 0.5) continue;
      const node = level.nodes[i];
      if (!node || !colors) continue;
      const from = Math.round((level.x0[i] ?? 0) * size.width);
      const pixel = colors[i] || pixelOf(colorOf(node));
      colors[i] = pixel;
      line.fill(pixel, from, Math.max(from + 1, Math.round(to)));
      reached = to;
    }
    if (downwards) raster.row(bottom, next);
    else raster.row(Math.round(room) - next, Math.round(room) - bottom);
    bottom = next;
  }
}
