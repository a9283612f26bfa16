// Rows of a comparison with what follows from them: blocks that are new, blocks that are gone.
import type { Amount, Diff, DiffRow } from "../../api/types.ts";

export interface ChangeRow extends DiffRow {
  key: number;
  /** Live after, and not before; only where the same blocks can be told. */
  born: Amount | undefined;
  /** Live before, and not after. */
  dead: Amount | undefined;
}

export function changeRows(diff: Diff): ChangeRow[] {
  return diff.rows.map((row, key) => ({
    ...row,
    key,
    born: row.survived ? minus(row.after, row.survived) : undefined,
    dead: row.survived ? minus(row.before, row.survived) : undefined,
  }));
}

function minus(whole: Amount, part: Amount): Amount {
  return { bytes: whole.bytes - part.bytes, count: whole.count - part.count };
}
