// What the values of an answer in SQL are, by the names of their columns: bytes, times, addresses; and how they are shown.
import type { SqlAnswer, SqlCell } from "../../api/types.ts";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatExact,
  formatRate,
  formatShortCount,
} from "../../lib/format.ts";

export type SqlKind = "text" | "number" | "bytes" | "time" | "address" | "count" | "rate" | "byte rate";

/** A row, with its place in the answer. */
export interface AnswerRow {
  index: number;
  cells: readonly (SqlCell | null)[];
}

export function rowsOf(answer: SqlAnswer): AnswerRow[] {
  return answer.rows.map((row, index) => ({ index, cells: answer.columns.map((name) => row[name] ?? null) }));
}

const KINDS: readonly (readonly [SqlKind, RegExp])[] = [
  ["time", /(^|_)ns$/],
  ["byte rate", /(^|_)bytes_per_second(_low|_high)?$/],
  ["bytes", /(^|_)(bytes|size)(_min|_max)?$/],
  ["address", /(^|_)(address|bias)$/],
  ["count", /(^|_)(count|blocks|allocations|frees|lost|n)$/],
  ["rate", /_(rate|per_second)$/],
];

/** What a column holds: numbers are told apart by its name, `max(a.size)` by that of what is added up or chosen. */
export function kindOf(name: string, values: readonly (SqlCell | null)[]): SqlKind {
  const known = values.filter((value) => value !== null);
  if (known.length === 0 || !known.every((value) => typeof value === "number")) return "text";
  const plain = name.toLowerCase().replace(/:\d+$/, "");
  if (/^count\(.*\)$/.test(plain)) return "count";
  const inner = /^(?:sum|total|min|max|avg)\((?:\w+\.)?(\w+)\)$/.exec(plain)?.[1] ?? plain;
  return KINDS.find(([, pattern]) => pattern.test(inner))?.[0] ?? "number";
}

/** A value, short. */
export function shortText(kind: SqlKind, value: SqlCell): string {
  if (typeof value !== "number") return String(value);
  switch (kind) {
    case "bytes":
      return formatBytes(value);
    case "time":
      return formatDuration(value);
    case "address":
      return isExact(value) && value >= 0 ? `0x${value.toString(16)}` : plainNumber(value);
    case "count":
      return isExact(value) ? formatCount(value) : formatShortCount(value);
    case "rate":
      return formatRate(value);
    case "byte rate":
      return `${formatBytes(value)}/s`;
    case "text":
    case "number":
      return plainNumber(value);
  }
}

/** A value with every digit that is known here. */
export function exactText(kind: SqlKind, value: SqlCell): string {
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && !isExact(value))
    return `about ${value}: a browser does not keep every digit of so large a number; CAST(… AS TEXT) does`;
  if (kind === "time") return isExact(value) ? `${formatCount(value)} ns` : `${value} ns`;
  if (kind === "bytes" && isExact(value)) return formatExact(value, "bytes");
  return String(value);
}

function isExact(value: number): boolean {
  return Number.isSafeInteger(value);
}

/** Identifiers are numbers, too: no commas. */
function plainNumber(value: number): string {
  if (isExact(value)) return String(value);
  return Number.isInteger(value) ? `≈ ${value}` : String(Number(value.toPrecision(6)));
}

/** Narrowest and widest column, in characters. */
const WIDTHS = { least: 6, most: 44 };

/** How many characters a column needs. */
export function charactersOf(header: string, texts: readonly string[]): number {
  const longest = texts.reduce((most, text) => Math.max(most, text.length), header.length + 2);
  return Math.max(WIDTHS.least, Math.min(WIDTHS.most, longest + 1));
}

/** What a column is called where only letters and `_` are allowed: `c_a` … `c_z`, `c_ba`. */
export function columnId(at: number): string {
  const letters: string[] = [];
  for (let rest = at; letters.length === 0 || rest > 0; rest = Math.floor(rest / 26))
    letters.unshift(String.fromCharCode(97 + (rest % 26)));
  return `c_${letters.join("")}`;
}
