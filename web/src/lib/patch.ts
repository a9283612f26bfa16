// A choice of cells in a picture of rows and columns: by pointer from corner to corner, by arrow keys, Shift to extend.

/** Cells from one corner to the other, both included. */
export interface Patch {
  row: number;
  column: number;
  rowTo: number;
  columnTo: number;
}

/** The same cells, the lower numbers first. */
export function ordered(patch: Patch): Patch {
  return {
    row: Math.min(patch.row, patch.rowTo),
    rowTo: Math.max(patch.row, patch.rowTo),
    column: Math.min(patch.column, patch.columnTo),
    columnTo: Math.max(patch.column, patch.columnTo),
  };
}

export function isInside(patch: Patch, rows: number, columns: number): boolean {
  return Math.max(patch.row, patch.rowTo) < rows && Math.max(patch.column, patch.columnTo) < columns;
}

/** As it is written in an address. */
export function writePatch({ row, column, rowTo, columnTo }: Patch): string {
  return [row, column, rowTo, columnTo].join(".");
}

export function readPatch(text: string): Patch | undefined {
  if (!/^\d{1,4}(\.\d{1,4}){3}$/.test(text)) return undefined;
  const [row = 0, column = 0, rowTo = 0, columnTo = 0] = text.split(".").map(Number);
  return { row, column, rowTo, columnTo };
}

const STEPS: Record<string, [number, number]> = {
  ArrowUp: [1, 0],
  ArrowDown: [-1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

/** The choice after an arrow key; nothing for other keys. Rows go up. */
export function moved(
  patch: Patch,
  { key, shiftKey }: { key: string; shiftKey: boolean },
  { rows, columns }: { rows: number; columns: number },
): Patch | undefined {
  const step = STEPS[key];
  if (!step) return undefined;
  const rowTo = Math.min(rows - 1, Math.max(0, patch.rowTo + step[0]));
  const columnTo = Math.min(columns - 1, Math.max(0, patch.columnTo + step[1]));
  return shiftKey ? { ...patch, rowTo, columnTo } : { row: rowTo, rowTo, column: columnTo, columnTo };
}
