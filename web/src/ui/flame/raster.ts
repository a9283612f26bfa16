// Boxes as pixels: each row of frames is put together once as one line of colours and copied downwards. A canvas takes
// some microseconds for each box it is told to fill; a picture of tens of thousands of them is one array here.
import type { FlameNode } from "../../lib/flame-tree.ts";
import type { FlameLayout } from "./layout.ts";

/** A colour as the four bytes of a pixel, red lowest; 0 is not a colour of a frame. */
type Pixel = number;

const pixels = new Map<string, Pixel>();

/** The pixel of a colour of a frame, `oklch(lightness chroma hue)`; 0 for none. */
export function pixelOf(color: string): Pixel {
  let pixel = pixels.get(color);
  if (pixel === undefined) {
    const parts = /^oklch\(([\d.]+) ([\d.]+) ([\d.]+)\)$/.exec(color);
    pixel = parts ? pixelOfOklch(Number(parts[1]), Number(parts[2]), Number(parts[3])) : 0;
    pixels.set(color, pixel);
  }
  return pixel;
}

/** CSS Color 4, sections 9.4 and 10.2; what sRGB does not have is clipped, as a canvas clips it. */
function pixelOfOklch(lightness: number, chroma: number, hue: number): Pixel {
  const turn = (hue * Math.PI) / 180;
  const a = chroma * Math.cos(turn);
  const b = chroma * Math.sin(turn);
  const l = (lightness + 0.3963377773761749 * a + 0.2158037573099136 * b) ** 3;
  const m = (lightness - 0.1055613458156586 * a - 0.0638541728258133 * b) ** 3;
  const s = (lightness - 0.0894841775298119 * a - 1.2914855480194092 * b) ** 3;
  const red = byteOf(4.0767416360759574 * l - 3.3077115392580616 * m + 0.2309699031821043 * s);
  const green = byteOf(-1.2684379732850317 * l + 2.6097573492876887 * m - 0.3413193760026573 * s);
  const blue = byteOf(-0.0041960761386756 * l - 0.7034186179359363 * m + 1.7076146940746117 * s);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** A part of linear light as a byte of sRGB. */
function byteOf(linear: number): number {
  const light = linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055;
  return Math.round(255 * Math.min(1, Math.max(0, light)));
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
