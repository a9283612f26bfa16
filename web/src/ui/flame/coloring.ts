// Which colour a frame has, and why.
import type { FlameFrame, Flamegraph } from "../../api/types.ts";
import { changeColor, distinctHues, frameColor, isSystemModule, restColor, type Theme } from "../../lib/colors.ts";
import { everyNode, type FlameNode, nodeName } from "../../lib/flame-tree.ts";
import { formatPercent, formatValue } from "../../lib/format.ts";
import { finished } from "../../lib/in-steps.ts";
import { fileName, shortName } from "../../lib/names.ts";
import type { ColorGroup } from "../../lib/search-params.ts";
import { boxName } from "./box-text.ts";
import { layoutOf, STEP_FRAMES } from "./layout.ts";
import { type ColorOf, pixelOf, pixelsOf } from "./raster.ts";

export interface Coloring {
  by: ColorGroup;
  /** Why it was chosen, where nobody asked for it. */
  why: string | undefined;
  /** The groups with the largest part of the picture, widest first. */
  groups: { name: string; part: number }[];
}

/** A colour with a larger part of the picture distinguishes nothing. */
const TOO_MUCH = 0.8;
/** As many are named beside the graph. */
const NAMED = 8;

/** The text that decides about a frame's colour; nothing where it is not known. */
export function groupOf(frame: FlameFrame, by: ColorGroup): string | undefined {
  switch (by) {
    case "module":
      return frame.module ?? undefined;
    case "file":
      return frame.file ?? undefined;
    case "namespace":
      return namespaceOf(frame.name);
    case "function":
      return frame.name;
    case "language":
      return frame.language ?? undefined;
  }
}

/** Each name is taken apart once: a finer graph below a frame has the names of the one before. */
const namespaces = new Map<string, string | undefined>();
const MOST_NAMES = 100_000;

/** The first two parts of what is before the last `::` of a name, outside of brackets. */
export function namespaceOf(name: string): string | undefined {
  if (!namespaces.has(name)) {
    if (namespaces.size >= MOST_NAMES) namespaces.clear();
    namespaces.set(name, readNamespace(name));
  }
  return namespaces.get(name);
}

function readNamespace(name: string): string | undefined {
  const plain = boxName(name).replace(/^[*&\s]+/, "");
  const parts: string[] = [];
  let depth = 0;
  let start = 0;
  for (let i = 0; i < plain.length; i += 1) {
    const c = plain.charAt(i);
    if (c === "<" || c === "(" || c === "{" || c === "[") depth += 1;
    else if (c === ">" || c === ")" || c === "}" || c === "]") depth -= 1;
    else if (c === ":" && depth === 0 && plain.charAt(i + 1) === ":") {
      parts.push(plain.slice(start, i));
      start = i + 2;
      i += 1;
    }
  }
  if (parts.length === 0) return undefined;
  return parts.slice(0, 2).join("::").replace(/<.*$/, "") || undefined;
}

/** What the frames of each function have of a tree's area: many nodes, few functions. */
const areas = new WeakMap<FlameNode, Map<FlameFrame, number>>();

function* areaSteps(tree: FlameNode): Generator<void, Map<FlameFrame, number>> {
  const known = areas.get(tree);
  if (known) return known;
  const sums = new Map<FlameFrame, number>();
  let seen = 0;
  for (const level of layoutOf(tree).levels) {
    for (const { frame, weight } of level.nodes) {
      seen += 1;
      if (seen % STEP_FRAMES === 0) yield;
      if (frame) sums.set(frame, (sums.get(frame) ?? 0) + weight);
    }
  }
  areas.set(tree, sums);
  return sums;
}

/** Frames of system libraries, which stay pale where groups are finer than modules. */
function isPale(frame: FlameFrame, by: ColorGroup): boolean {
  return by !== "module" && by !== "language" && typeof frame.module === "string" && isSystemModule(frame.module);
}

/** What the groups have of the picture's area. */
function* shareSteps(tree: FlameNode, by: ColorGroup): Generator<void, { name: string; part: number }[]> {
  const sums = new Map<string, number>();
  let all = 0;
  let seen = 0;
  for (const [frame, area] of yield* areaSteps(tree)) {
    seen += 1;
    // Names are taken apart: fewer at a time.
    if (seen % (STEP_FRAMES / 4) === 0) yield;
    all += area;
    const group = isPale(frame, by) ? undefined : groupOf(frame, by);
    if (group !== undefined) sums.set(group, (sums.get(group) ?? 0) + area);
  }
  const shares = [...sums].map(([name, sum]) => ({ name, part: all > 0 ? sum / all : 0 }));
  yield;
  return shares.sort((a, b) => b.part - a.part || (a.name < b.name ? -1 : 1));
}

/**
 * How the frames of a tree are coloured: as asked for; else by module, and where one module has nearly everything by
 * the next finer thing that is known of most frames and tells them apart.
 */
export function coloringOf(tree: FlameNode, wanted?: ColorGroup): Coloring {
  return finished(coloringSteps(tree, wanted));
}

/** The same in steps, for {@link coloringOf} to have. */
export function* coloringSteps(tree: FlameNode, wanted?: ColorGroup): Generator<void, Coloring> {
  const known = colorings.get(tree)?.get(wanted);
  if (known) return known;
  const coloring = yield* chooseColoring(tree, wanted);
  const made = colorings.get(tree) ?? new Map<ColorGroup | undefined, Coloring>();
  colorings.set(tree, made);
  made.set(wanted, coloring);
  return coloring;
}

const colorings = new WeakMap<FlameNode, Map<ColorGroup | undefined, Coloring>>();

function* chooseColoring(tree: FlameNode, wanted: ColorGroup | undefined): Generator<void, Coloring> {
  function* of(by: ColorGroup, why?: string): Generator<void, Coloring> {
    return { by, why, groups: (yield* shareSteps(tree, by)).slice(0, NAMED) };
  }
  if (wanted) return yield* of(wanted);
  const modules = (yield* shareSteps(tree, "module")).filter((module) => !isSystemModule(module.name));
  const [largest] = modules;
  // Pale frames distinguish nothing, whatever they have of the picture.
  const own = sumOf(modules);
  if (!largest || largest.part < TOO_MUCH * own) return yield* of("module");
  const why = `${fileName(largest.name)} has ${formatPercent(largest.part / own)} of what is outside of system libraries`;
  for (const by of ["file", "namespace"] as const) {
    const groups = yield* shareSteps(tree, by);
    if (sumOf(groups) >= 0.5 * own && (groups[0]?.part ?? own) < TOO_MUCH * own) return yield* of(by, why);
  }
  return yield* of("function", why);
}

/** What the colours of a recording are by, where nobody chose: they stay the same while the window moves. */
const automatic = new Map<string, Coloring>();
const automaticIn = new WeakMap<FlameNode, Coloring>();

/** How a tree of a recording is coloured: as asked for, else as the trees of the recording before it. */
export function coloringIn(recording: string, tree: FlameNode, wanted?: ColorGroup): Coloring {
  return finished(coloringInSteps(recording, tree, wanted));
}

/** What a part of a recording's graph is coloured by: as asked for, else as the graph, if it was drawn, else by its own. */
export function groupingLike(recording: string, part?: FlameNode, wanted?: ColorGroup): ColorGroup | undefined {
  return wanted ?? automatic.get(recording)?.by ?? (part && coloringOf(part).by);
}

function* coloringInSteps(recording: string, tree: FlameNode, wanted?: ColorGroup): Generator<void, Coloring> {
  if (wanted) return yield* coloringSteps(tree, wanted);
  const known = automatic.get(recording);
  if (!known) {
    const made = yield* coloringSteps(tree);
    automatic.set(recording, made);
    automaticIn.set(tree, made);
    return made;
  }
  let coloring = automaticIn.get(tree);
  if (coloring?.by !== known.by) {
    coloring = { ...(yield* coloringSteps(tree, known.by)), why: known.why };
    automaticIn.set(tree, coloring);
  }
  return coloring;
}

/** The colours of all frames in steps, for {@link coloringIn}, {@link colorOf} and the painter to have. */
export function* paintSteps(
  recording: string,
  tree: FlameNode,
  document: Flamegraph,
  theme: Theme,
  wanted?: ColorGroup,
): Generator<void, void> {
  const { by } = yield* coloringInSteps(recording, tree, wanted);
  // The hues are those of the largest groups by what was chosen.
  yield* coloringSteps(tree, by);
  const layout = layoutOf(tree);
  const color = colorOf(tree, document, theme, by);
  const pixels = pixelsOf(layout, color);
  let seen = 0;
  for (const [depth, level] of layout.levels.entries()) {
    const row = pixels[depth];
    if (!row) continue;
    for (const [i, node] of level.nodes.entries()) {
      seen += 1;
      if (seen % STEP_FRAMES === 0) yield;
      row[i] = pixelOf(color(node));
    }
  }
}

function sumOf(groups: readonly { part: number }[]): number {
  return groups.reduce((sum, group) => sum + group.part, 0);
}

/** Colours computed for a tree, kept so that going back to it finds the same functions. */
const paints = new WeakMap<FlameNode, Map<string, ColorOf>>();

/** By group; for growth by how much, red and blue. */
export function colorOf(tree: FlameNode, document: Flamegraph, theme: Theme, by: ColorGroup = "module"): ColorOf {
  const made = paints.get(tree) ?? new Map<string, ColorOf>();
  paints.set(tree, made);
  const key = `${theme} ${document.metric === "grown" ? "grown" : by}`;
  let color = made.get(key);
  if (!color) {
    color = document.metric === "grown" ? byChange(tree, theme) : byGroup(tree, theme, by);
    made.set(key, color);
  }
  return color;
}

function byChange(tree: FlameNode, theme: Theme): ColorOf {
  const largest = largestChange(tree);
  return (node) => changeColor(node.value, largest, theme);
}

/** What groups had in pictures before. */
const usualHues = new Map<string, Map<string, number>>();
const pictureHues = new WeakMap<FlameNode, Map<string, Map<string, number>>>();

/** Hues of a picture's largest groups, no two alike. */
export function huesOf(tree: FlameNode, theme: Theme, by: ColorGroup): Map<string, number> {
  const key = `${theme} ${by}`;
  const made = pictureHues.get(tree) ?? new Map<string, Map<string, number>>();
  pictureHues.set(tree, made);
  const usual = usualHues.get(key) ?? new Map<string, number>();
  usualHues.set(key, usual);
  let hues = made.get(key);
  if (!hues) {
    const largest = coloringOf(tree, by).groups.map((group) => group.name);
    hues = distinctHues(largest, theme, usual);
    made.set(key, hues);
  }
  return hues;
}

function byGroup(tree: FlameNode, theme: Theme, by: ColorGroup): ColorOf {
  const hues = huesOf(tree, theme, by);
  const colors = new Map<FlameFrame, string>();
  return ({ folded, frame }) => {
    if (folded > 0 || !frame) return restColor(theme);
    let color = colors.get(frame);
    if (color === undefined) {
      const group = isPale(frame, by) ? (frame.module ?? undefined) : groupOf(frame, by);
      color = groupColor(group, frame.name, theme, group === undefined ? undefined : hues.get(group));
      colors.set(frame, color);
    }
    return color;
  };
}

/** The fill of a group's frames; names shade it slightly. */
export function groupColor(group: string | undefined, name: string, theme: Theme, place?: number): string {
  return frameColor(group, name, theme, place);
}

/** Magnitude of the largest change below the root. */
export function largestChange(tree: FlameNode): number {
  let largest = 0;
  for (const node of everyNode(tree)) if (node.parent) largest = Math.max(largest, Math.abs(node.value));
  return largest;
}

/** Kept, so that a tree that is shown again is known to be described as before. */
const descriptions = new WeakMap<Flamegraph, (node: FlameNode) => string>();

/** What a reader of screens says of a frame. */
export function descriptionOf(document: Flamegraph): (node: FlameNode) => string {
  let describe = descriptions.get(document);
  if (!describe) {
    describe = (node) =>
      `${shortName(nodeName(node), 200)}, ${formatValue(node.value, document.unit)}, ${formatPercent(node.value / document.total)}`;
    descriptions.set(document, describe);
  }
  return describe;
}
