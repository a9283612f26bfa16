// Lines of a source file with their sums, and the link that opens one in an editor.
import type { Parameters } from "../../api/client.ts";
import type { Source } from "../../api/types.ts";

export interface SourceRow {
  line: number;
  text: string;
  flat: number;
  cum: number;
  /** `cum` as a part of the heaviest line's. */
  part: number;
}

/** Every line where the text is known, else only those with sums. */
export function sourceLines(source: Source): { rows: SourceRow[]; total: number } {
  const sums = new Map(source.lines.map((line) => [line.line, line]));
  const heaviest = source.lines.reduce((most, line) => Math.max(most, Math.abs(line.cum)), 0);
  const total = source.lines.reduce((sum, line) => sum + line.flat, 0);
  const row = (line: number, text: string): SourceRow => {
    const known = sums.get(line);
    return {
      line,
      text,
      flat: known?.flat ?? 0,
      cum: known?.cum ?? 0,
      part: heaviest > 0 ? Math.abs(known?.cum ?? 0) / heaviest : 0,
    };
  };
  if (source.text == null) {
    return { rows: [...sums.keys()].sort((a, b) => a - b).map((line) => row(line, "")), total };
  }
  return {
    rows: source.text
      .replace(/\n$/, "")
      .split("\n")
      .map((text, i) => row(i + 1, text.replaceAll("\t", "    "))),
    total,
  };
}

/** The template with file and line; nothing for templates that could run code in the page. */
export function editorLink(template: string, file: string, line: number): string | undefined {
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(template.trim())?.[1]?.toLowerCase();
  if (!scheme || ["javascript", "data", "vbscript", "blob"].includes(scheme)) return undefined;
  return template.trim().replaceAll("%f", encodeURI(file)).replaceAll("%l", String(line));
}

/** The filters as the route takes them: there a number alone is the id of a module, and no pattern. */
export function sourceFilters(filters: Parameters): Parameters {
  const { module } = filters;
  return typeof module === "string" && /^\d+$/.test(module) ? { ...filters, module: `(${module})` } : filters;
}
