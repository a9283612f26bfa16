// The graph as a file: SVG that needs no other file, or PNG. Laid out here, so that no style sheet is needed.
import type { Flamegraph } from "../../api/types.ts";
import type { Theme } from "../../lib/colors.ts";
import { everyNode, type FlameNode, nodeName } from "../../lib/flame-tree.ts";
import { formatInstant, formatPercent, formatValue } from "../../lib/format.ts";
import { shortName } from "../../lib/names.ts";
import type { ColorGroup } from "../../lib/search-params.ts";
import { boxLabel } from "../../ui/flame/box-text.ts";
import { colorOf } from "../../ui/flame/coloring.ts";

const ROW = 18;
const TITLE = 26;
/** Narrower boxes cannot be seen in a picture that does not zoom. */
const LEAST_PX = 0.2;

interface Box {
  x: number;
  y: number;
  width: number;
  fill: string;
  text: string;
  title: string;
}

export interface Picture {
  width: number;
  height: number;
  title: string;
  boxes: Box[];
  ink: string;
  paper: string;
  svg: () => string;
}

/** Lays the tree out, downwards. */
export function pictureOf(
  root: FlameNode,
  document: Flamegraph,
  width: number,
  theme: Theme,
  by: ColorGroup | undefined,
  program: string,
): Picture {
  const color = colorOf(root, document, theme, by);
  const left = new Map<FlameNode, number>([[root, 0]]);
  const scale = root.weight > 0 ? width / root.weight : 0;
  const boxes: Box[] = [];
  let depth = 0;
  for (const node of everyNode(root)) {
    const x = left.get(node) ?? 0;
    let next = x;
    for (const child of node.children) {
      left.set(child, next);
      next += child.weight * scale;
    }
    const down = node.depth - root.depth;
    depth = Math.max(depth, down);
    const name = nodeName(node);
    const boxWidth = node.weight * scale;
    if (boxWidth < LEAST_PX) continue;
    boxes.push({
      x,
      y: TITLE + down * ROW,
      width: boxWidth,
      fill: color(node),
      text: boxWidth > 30 ? shortName(boxLabel(name, node.frame?.file), Math.floor((boxWidth - 6) / 6.2)) : "",
      title: `${name}: ${formatValue(node.value, document.unit)} (${formatPercent(node.value / document.total)})`,
    });
  }
  const span = `${formatInstant(document.from_ns)} – ${formatInstant(document.to_ns)}`;
  const picture: Omit<Picture, "svg"> = {
    width,
    height: TITLE + (depth + 1) * ROW + 4,
    title: `${program}: ${document.metric} ${document.unit}, ${document.at_ns == null ? span : `at ${formatInstant(document.at_ns)}${document.peak_of ? `, the peak of ${document.peak_of === "filter" ? "what passes the filter" : "the heap"}` : ""}`}, total ${formatValue(document.total, document.unit)}`,
    boxes,
    ink: theme === "light" ? "#1b1e25" : "#e8ebf0",
    paper: theme === "light" ? "#ffffff" : "#16181d",
  };
  return { ...picture, svg: () => toSvg(picture) };
}

/** Text that is safe in XML, and that XML allows: no control characters. */
export function escapeXml(text: string): string {
  let out = "";
  for (const c of text) {
    const code = c.codePointAt(0) ?? 0;
    const allowed = code === 9 || code === 10 || code === 13 || (code >= 32 && code !== 0xfffe && code !== 0xffff);
    if (!allowed || (code >= 0xd800 && code < 0xe000)) out += "\ufffd";
    else out += "&<>\"'".includes(c) ? `&#${code};` : c;
  }
  return out;
}

function toSvg(picture: Omit<Picture, "svg">): string {
  const { width, height, title, boxes, ink, paper } = picture;
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="11">`,
    `<rect width="100%" height="100%" fill="${paper}"/><text x="6" y="17" fill="${ink}" font-size="12">${escapeXml(title)}</text>`,
  ];
  for (const box of boxes) {
    parts.push(
      `<g><title>${escapeXml(box.title)}</title><rect x="${box.x.toFixed(2)}" y="${box.y}" width="${Math.max(0.1, box.width - 0.5).toFixed(2)}" height="${ROW - 1}" fill="${box.fill}"/>`,
      box.text
        ? `<text x="${(box.x + 3).toFixed(2)}" y="${box.y + 12.5}" fill="${ink}">${escapeXml(box.text)}</text>`
        : "",
      "</g>",
    );
  }
  parts.push("</svg>");
  return parts.join("");
}

export function saveFile(name: string, type: string, content: BlobPart): void {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Drawn on a canvas at twice the size. */
export function savePng(name: string, picture: Picture): void {
  const canvas = document.createElement("canvas");
  canvas.width = picture.width * 2;
  canvas.height = Math.min(16_000, picture.height * 2);
  const context = canvas.getContext("2d");
  if (!context) return;
  context.scale(2, 2);
  context.fillStyle = picture.paper;
  context.fillRect(0, 0, picture.width, picture.height);
  context.fillStyle = picture.ink;
  context.font = "12px system-ui, sans-serif";
  context.fillText(picture.title, 6, 17);
  context.font = "11px system-ui, sans-serif";
  for (const box of picture.boxes) {
    context.fillStyle = box.fill;
    context.fillRect(box.x, box.y, Math.max(0.1, box.width - 0.5), ROW - 1);
    if (!box.text) continue;
    context.fillStyle = picture.ink;
    context.fillText(box.text, box.x + 3, box.y + 12.5, Math.max(1, box.width - 5));
  }
  canvas.toBlob((blob) => {
    if (blob) saveFile(name, "image/png", blob);
  });
}
