// Boxes as pixels: each row of frames is put together once as one line of colours and copied downwards. A canvas takes
// some microseconds for each box it is told to fill; a picture of tens of thousands of them is one array here.
import type { FlameNode } from "../../lib/flame-tree.ts";
import type { FlameLayout } from "./layout.ts";

/** A colour as the four bytes of a pixel, red lowest; 0 is not a colour of a frame. */
type Pixel = number;

const pixels = new Map<string, Pixel>();
let probe: CanvasRenderingContext2D | null | undefined;

/** The pixel of a CSS colour, as a canvas draws it. */
export function pixelOf(color: string): Pixel {
  let pixel = pixels.get(color);
  if (pixel !== undefined) return pixel;
  if (probe === undefined) {
    const canvas = document.createElement("canvas");
    canvas.width = 1;
    canvas.height = 1;
    probe = canvas.getContext("2d", { willReadFrequently: true });
  }
  if (!probe) return 0;
  probe.clearRect(0, 0, 1, 1);
  probe.fillStyle = color;
  probe.fillRect(0, 0, 1, 1);
  pixel = new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer)[0] ?? 0;
  pixels.set(color, pixel);
  return pixel;
}

/** The same colour with less of itself. */
export function thinned(pixel: Pixel, alpha: number): Pixel {
  return ((pixel & 0xffffff) | (Math.round(alpha * 255) << 24)) >>> 0;
}

export type ColorOf = (node: FlameNode) => string;

/** Pixels of each frame of a layout, level by level, filled in as they are drawn. */
const painted = new WeakMap<FlameLayout, WeakMap<ColorOf, Uint32Array[]>>();

export function pixelsOf(layout: FlameLayout, color: ColorOf): Uint32Array[] {
  const colors = painted.get(layout) ?? new WeakMap<ColorOf, Uint32Array[]>();
  painted.set(layout, colors);
  let levels = colors.get(color);
  if (!levels) {
    levels = layout.levels.map((level) => new Uint32Array(level.nodes.length));
    colors.set(color, levels);
  }
  return levels;
}

/** A picture in memory, as large as a canvas. */
export class Raster {
  private image: ImageData | undefined;
  private all = new Uint32Array(0);
  /** One line of the row that is being put together. */
  line = new Uint32Array(0);

  /** Empty, and of this size in pixels. */
  begin(width: number, height: number): void {
    if (this.image?.width !== width || this.image.height !== height) {
      this.image = new ImageData(width, height);
      this.all = new Uint32Array(this.image.data.buffer);
      this.line = new Uint32Array(width);
    } else this.all.fill(0);
    this.line.fill(0);
  }

  /** Copies the line to a row of the picture and begins a new one. */
  row(top: number, bottom: number): void {
    const { width = 0, height = 0 } = this.image ?? {};
    for (let y = Math.max(0, top); y < Math.min(height, bottom); y += 1) this.all.set(this.line, y * width);
    this.line.fill(0);
  }

  show(context: CanvasRenderingContext2D): void {
    if (this.image) context.putImageData(this.image, 0, 0);
  }
}
