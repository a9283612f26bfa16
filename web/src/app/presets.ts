// Sets of filters that the browser keeps.
import { patternsOf } from "../lib/pattern.ts";
import { FILTERS, type Filters } from "../lib/search-params.ts";
import { readTransforms, transformText } from "../lib/transforms.ts";

export interface Preset {
  name: string;
  filters: Filters;
}

const KEY = "heaptrace.presets";
const MOST = 50;
export const LONGEST_NAME = 80;

/** What the filters say, in one line. */
export function presetName(filters: Filters): string {
  const parts = FILTERS.filter((name) => filters[name] !== undefined).map((name) =>
    name === "transform"
      ? transformsName(filters.transform)
      : patternsOf(filters[name])
          .map((one) => `${name} ${one}`)
          .join(", "),
  );
  const text = parts.join(", ");
  return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}

function transformsName(text: string | undefined): string {
  return readTransforms(text)
    .map(transformText)
    .map(({ what, name }) => `${what} ${name}`)
    .join(", ");
}

/** Presets out of a text; whatever is not one is dropped. */
export function parsePresets(text: string | null): Preset[] {
  let value: unknown;
  try {
    value = JSON.parse(text ?? "[]");
  } catch {
    return [];
  }
  if (!Array.isArray(value)) return [];
  return value.slice(0, MOST).flatMap((item: unknown): Preset[] => {
    if (typeof item !== "object" || item === null || !("filters" in item)) return [];
    const given = item.filters;
    if (typeof given !== "object" || given === null) return [];
    const filters: Filters = {};
    for (const name of FILTERS) {
      const text = (given as Record<string, unknown>)[name];
      if (typeof text === "string" && text !== "") filters[name] = text;
    }
    if (Object.keys(filters).length === 0) return [];
    const name = "name" in item && typeof item.name === "string" ? item.name.trim().slice(0, LONGEST_NAME) : "";
    return [{ name: name || presetName(filters), filters }];
  });
}

export function readPresets(): Preset[] {
  try {
    return parsePresets(localStorage.getItem(KEY));
  } catch {
    return [];
  }
}

/** Stores the presets; returns whether the browser kept them. */
export function writePresets(presets: readonly Preset[]): boolean {
  try {
    localStorage.setItem(KEY, JSON.stringify(presets));
    return true;
  } catch {
    return false;
  }
}
