// Columns that tables of several views have: bytes, numbers, parts, functions, source lines.
import { formatBytes, formatCount, formatExact, formatPercent } from "../lib/format.ts";
import { rowName } from "../lib/names.ts";
import { Share } from "./controls.tsx";
import type { Column } from "./data-table.tsx";

type ColumnHead = Pick<Column<never>, "id" | "header" | "definition" | "width">;

export function bytesColumn<Row>(head: ColumnHead, bytes: (row: Row) => number): Column<Row> {
  const cell = (row: Row) => <span title={formatExact(bytes(row), "bytes")}>{formatBytes(bytes(row))}</span>;
  return { ...head, numeric: true, value: bytes, cell };
}

export function countColumn<Row>(head: ColumnHead, count: (row: Row) => number): Column<Row> {
  return { ...head, numeric: true, value: count, cell: (row) => formatCount(count(row)) };
}

/** A part of a total as a bar, with its percentage. */
export function shareColumn<Row>(head: ColumnHead, part: (row: Row) => number): Column<Row> {
  const cell = (row: Row) => <Share part={Math.abs(part(row))}>{formatPercent(part(row))}</Share>;
  return { ...head, numeric: true, value: part, cell };
}

/** The name of a function without its arguments, with its file if the name says nothing; the tooltip has all of it. */
export function functionColumn<Row>(
  head: ColumnHead,
  name: (row: Row) => string,
  file: (row: Row) => string | null | undefined,
  isMuted?: (row: Row) => boolean,
): Column<Row> {
  const cell = (row: Row) => (
    <span className={isMuted?.(row) ? "mono muted" : "mono"} title={name(row)}>
      {rowName(name(row), file(row))}
    </span>
  );
  return { ...head, isSubject: true, value: name, cell };
}

/** A source line, or whatever says where something is. */
export function placeColumn<Row>(head: ColumnHead, place: (row: Row) => string | null | undefined): Column<Row> {
  return { ...head, value: (row) => place(row) ?? "", cell: (row) => <Place text={place(row) ?? ""} /> };
}

/** A source line. Where it does not fit the name of its file is cut, and not the number of the line. */
export function Place({ text, title = text }: { text: string; title?: string }) {
  const line = /:\d+$/.exec(text)?.[0] ?? "";
  return (
    <span className="muted place" title={title}>
      <span>{text.slice(0, text.length - line.length)}</span>
      {line}
    </span>
  );
}
