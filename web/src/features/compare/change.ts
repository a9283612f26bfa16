// Rows and frames of a comparison with what follows from them: blocks that are new, blocks that are gone, and words.

import type { Parameters } from "../../api/client.ts";
import { documentQuery, type Subject } from "../../api/queries.ts";
import type { Amount, Diff, DiffRow } from "../../api/types.ts";
import { formatPercent, formatTimes } from "../../lib/format.ts";
import { finished, inSteps } from "../../lib/in-steps.ts";
import type { ChangeKind } from "../../lib/search-params.ts";

export interface ChangeRow extends DiffRow {
  /** Hash of its stack: the same in every answer about the recording. */
  key: string;
  /** Live after, and not before; only where the same blocks can be recognised. */
  allocated: Amount | undefined;
  /** Live before, and not after. */
  dead: Amount | undefined;
}

const known = new WeakMap<Diff["rows"], ChangeRow[]>();

/** The rows of a comparison, made once. */
export function changeRows({ rows }: Diff): ChangeRow[] {
  return known.get(rows) ?? finished(changeSteps(rows));
}

/** A comparison whose rows are made, in steps, before anybody draws them. */
export function changeQuery(subject: Subject, parameters: Parameters) {
  const query = documentQuery(subject, "diff", parameters);
  return {
    ...query,
    queryFn: async (context: { signal: AbortSignal }): Promise<Diff> => {
      const diff = await query.queryFn(context);
      await inSteps(changeSteps(diff.rows), context.signal);
      return diff;
    },
  };
}

/** Rows of a step. */
const STEP_ROWS = 200;

function* changeSteps(rows: Diff["rows"]): Generator<void, ChangeRow[]> {
  const seen = new Map<string, number>();
  const made: ChangeRow[] = [];
  for (const row of rows) {
    if (made.length % STEP_ROWS === STEP_ROWS - 1) yield;
    const hash = hashOf(row.stack.map((frame) => `${frame.address} ${frame.function} ${frame.line}`).join("\n"));
    const before = seen.get(hash) ?? 0;
    seen.set(hash, before + 1);
    made.push({
      ...row,
      key: before === 0 ? hash : `${hash}z${before}`,
      allocated: row.survived ? minus(row.after, row.survived) : undefined,
      dead: row.survived ? minus(row.before, row.survived) : undefined,
    });
  }
  known.set(rows, made);
  return made;
}

/** A text in a few letters and digits: two FNV-1a sums of 32 bits. */
function hashOf(text: string): string {
  const sum = (basis: number) => {
    let hash = basis;
    for (let i = 0; i < text.length; i += 1) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
    return (hash >>> 0).toString(36);
  };
  return sum(0x811c9dc5) + sum(0x9e3779b1);
}

function minus(whole: Amount, part: Amount): Amount {
  return { bytes: whole.bytes - part.bytes, count: whole.count - part.count };
}

/** What happened between two sums; `undefined`: nothing. */
export function kindOf(before: number, after: number): ChangeKind | undefined {
  if (before === after) return undefined;
  if (before === 0) return "new";
  if (after === 0) return "gone";
  return after > before ? "grew" : "shrank";
}

/** Growth holds what is new, shrinking what is gone. */
export function isOfKind(wanted: ChangeKind | undefined, before: number, after: number): boolean {
  const kind = kindOf(before, after);
  if (wanted === undefined) return true;
  if (wanted === "grew") return kind === "grew" || kind === "new";
  if (wanted === "shrank") return kind === "shrank" || kind === "gone";
  return kind === wanted;
}

export const KIND_TEXT: Record<ChangeKind, { label: string; sign: string; title: string }> = {
  grew: { label: "Grew", sign: "▲", title: "More after than before, new ones included" },
  shrank: { label: "Shrank", sign: "▼", title: "Less after than before, gone ones included" },
  new: { label: "New", sign: "▲", title: "Nothing before" },
  gone: { label: "Gone", sign: "▼", title: "Nothing after" },
};

/** The change in words, as a part of what was there before. */
export function changeText(before: number, after: number): string {
  const kind = kindOf(before, after);
  if (kind === undefined) return "unchanged";
  if (kind === "new") return "new";
  if (kind === "gone") return "gone";
  const part = (after - before) / before;
  const percent = Math.abs(part) >= 9.995 ? formatTimes(after / before) : formatPercent(part);
  return part > 0 && !percent.endsWith("×") ? `+${percent}` : percent.replace("-", "−");
}
