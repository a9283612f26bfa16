// Orders of rows by several columns: what the URL says of them, what a click on a header makes of them, how rows compare.

/** A column and whether its order is turned round: figures begin with the largest, texts with A. */
export interface SortKey {
  column: string;
  reversed: boolean;
}

/** As many columns as the server takes. */
const MOST_KEYS = 4;
/** What `sort` of a URL looks like: `flat,-name`. */
export const SORT_TEXT = /^-?[a-z_]{1,20}(,-?[a-z_]{1,20}){0,3}$/;

/** The columns that `sort` names; those that the view does not know are left out. */
export function readKeys(
  sort: string | undefined,
  columns: readonly string[] | undefined,
  otherwise: SortKey,
): SortKey[] {
  const keys: SortKey[] = [];
  for (const part of sort?.split(",") ?? []) {
    const column = part.replace(/^-/, "");
    const known = (columns === undefined || columns.includes(column)) && keys.every((key) => key.column !== column);
    if (known && column !== "") keys.push({ column, reversed: part.startsWith("-") });
  }
  return keys.length > 0 ? keys.slice(0, MOST_KEYS) : [otherwise];
}

export function writeKeys(keys: readonly SortKey[]): string {
  return keys.map(({ column, reversed }) => (reversed ? `-${column}` : column)).join(",");
}

/**
 * The order after a header was chosen. Alone: its column decides, and if it did already, the other way round.
 * In addition (Shift): it decides among equals of the others; then the other way round; then no more.
 */
export function choose(keys: readonly SortKey[], column: string, add: boolean): SortKey[] {
  const known = keys.find((key) => key.column === column);
  if (!add) return [{ column, reversed: known !== undefined && keys.length === 1 && !known.reversed }];
  if (!known) return keys.length < MOST_KEYS ? [...keys, { column, reversed: false }] : [...keys];
  const others = keys.filter((key) => key !== known);
  if (known.reversed && others.length > 0) return others;
  return keys.map((key) => (key === known ? { column, reversed: !key.reversed } : key));
}

export interface SortableColumn<Row> {
  id: string;
  numeric?: boolean;
  /** Its order begins with the largest, as that of figures, though it shows something else. */
  largestFirst?: boolean;
  value?: (row: Row) => number | string;
  /** What its order follows, where that is not the value itself. */
  order?: (row: Row) => number | string;
}

const byText = new Intl.Collator("en", { numeric: true });

/** Compares two rows by a column: figures and texts both from the smallest up. */
export function compareBy<Row>(column: SortableColumn<Row>, a: Row, b: Row): number {
  const by = column.order ?? column.value;
  const x = by?.(a) ?? "";
  const y = by?.(b) ?? "";
  if (typeof x === "number" && typeof y === "number") return x - y;
  return byText.compare(String(x), String(y));
}

/** Whether the column's larger values come first. */
export function isDescending<Row>(column: SortableColumn<Row> | undefined, key: SortKey): boolean {
  return (column?.numeric || column?.largestFirst || false) !== key.reversed;
}

/** The rows in an order, as a table sorts them: for what is copied or saved of it. */
export function sortedRows<Row>(
  rows: readonly Row[],
  columns: readonly SortableColumn<Row>[],
  keys: readonly SortKey[],
): Row[] {
  const by = keys.flatMap((key) => {
    const column = columns.find((known) => known.id === key.column);
    return column?.value ? [{ column, sign: isDescending(column, key) ? -1 : 1 }] : [];
  });
  return [...rows].sort((a, b) => {
    for (const { column, sign } of by) {
      const order = sign * compareBy(column, a, b);
      if (order !== 0) return order;
    }
    return 0;
  });
}
