// A virtualised table: columns with definitions, sorting here or at the server, keyboard, context menu.
import {
  type ColumnDef,
  createSortedRowModel,
  rowSortingFeature,
  tableFeatures,
  useTable,
} from "@tanstack/react-table";
import {
  type ComponentProps,
  type CSSProperties,
  type KeyboardEvent,
  type ReactNode,
  useEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import { choose, compareBy, isDescending, type SortKey, writeKeys } from "../lib/sorting.ts";
import { useFixedRows } from "./fixed-rows.ts";
import { useLit } from "./lit.ts";
import { longScroll, offsetFor } from "./long-scroll.ts";
import { below, isMenuKey, type MenuItem, useMenu } from "./menu.tsx";
import { usePage } from "./page.ts";
import type { Sorting } from "./sorting.ts";
import { usePrinting } from "./use-printing.ts";
import { useWidth } from "./use-size.ts";

export interface Column<Row> {
  id: string;
  header: string;
  definition: string;
  /** A CSS grid track: `90px`, `minmax(200px, 1fr)`. */
  width: string;
  numeric?: boolean;
  /** Its order begins with the largest, as that of figures, though it shows something else. */
  largestFirst?: boolean;
  /** The column whose order its header chooses, where the order of its own would be the same. */
  sortsBy?: string;
  /** Says what a row is about: comes first where the columns do not all fit. */
  isSubject?: boolean;
  /** What sorting and copying see; columns without it cannot be sorted here. */
  value?: (row: Row) => number | string;
  /** What sorting sees instead. */
  order?: (row: Row) => number | string;
  cell: (row: Row) => ReactNode;
}

interface DataTableProps<Row> {
  label: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  rowKey: (row: Row) => string;
  sorting?: Sorting;
  /** Enter, or a click on a row that is selected. */
  onOpen?: (row: Row) => void;
  onSelect?: (row: Row) => void;
  isSelected?: (row: Row) => boolean;
  isDimmed?: (row: Row) => boolean;
  /** Functions that the row is about, the foremost first: lit together with them elsewhere. */
  functions?: (row: Row) => readonly string[];
  menu?: (row: Row) => MenuItem[];
  /** Called when the last rows come into view. */
  onNearEnd?: () => void;
  /** The number of rows that exist, if more than are here. */
  total?: number;
  /** In place of `rows`: the row at a position among `total`, or nothing while it is on its way. */
  rowAt?: (index: number) => Row | undefined;
  /** Called with the first and the last position in sight. */
  onRange?: (first: number, last: number) => void;
  rowHeight?: number;
  /** As high as its rows, where there is room; else it fills what is left. */
  fit?: boolean;
}

const features = tableFeatures({
  rowSortingFeature,
  sortedRowModel: createSortedRowModel(),
});

/** Pixels that a table has on a sheet of A4. */
const PAPER_WIDTH = 650;

const NO_KEYS: readonly SortKey[] = [];

export function DataTable<Row extends object>(props: DataTableProps<Row>) {
  const {
    rows,
    columns: given,
    rowKey,
    sorting,
    onOpen,
    onSelect,
    isSelected,
    isDimmed,
    menu,
    onNearEnd,
    onRange,
    functions,
    rowHeight = 26,
  } = props;
  const { search } = usePage();
  const openMenu = useMenu();
  const scroller = useRef<HTMLDivElement>(null);
  const [focused, setFocused] = useState(0);
  const chosen = useRef<string | undefined>(undefined);
  /** The position that keys have moved to before its row was here. */
  const awaited = useRef<number | undefined>(undefined);

  const printing = usePrinting();
  const width = useWidth(scroller);
  const least = leastWidth(given);
  // What is on the screen goes on paper, whatever the boxes of paper measure.
  const tightOnScreen = useRef(false);
  if (!printing) tightOnScreen.current = width > 0 && width < least;
  const tight = tightOnScreen.current;
  const columns = useMemo(() => (tight ? subjectFirst(given) : given), [given, tight]);

  const definitions = useMemo(
    () =>
      columns.map(
        (column): ColumnDef<typeof features, Row> => ({
          id: column.id,
          header: column.header,
          accessorFn: (row) => column.value?.(row),
          enableSorting: column.value !== undefined,
          sortFn: (a, b) => compareBy(column, a.original, b.original),
        }),
      ),
    [columns],
  );
  // The table keeps values by row and column: columns that mean something else now need new rows.
  // biome-ignore lint/correctness/useExhaustiveDependencies: see above
  const data = useMemo(() => [...rows], [rows, columns]);
  const keys = sorting?.keys ?? NO_KEYS;
  const keysText = writeKeys(keys);
  // biome-ignore lint/correctness/useExhaustiveDependencies: equal texts are equal keys
  const state = useMemo(() => {
    const known = sorting?.by === "here" ? keys : NO_KEYS;
    return {
      sorting: known.flatMap((key) => {
        const column = columns.find((one) => one.id === key.column);
        return column?.value ? [{ id: key.column, desc: isDescending(column, key) }] : [];
      }),
    };
  }, [sorting?.by, keysText, columns]);
  // A second click may come before the first one is in the URL: it adds to what was chosen, not to what is drawn.
  const chosenKeys = useRef(keys);
  // biome-ignore lint/correctness/useExhaustiveDependencies: equal texts are equal keys
  useEffect(() => {
    chosenKeys.current = keys;
  }, [keysText]);
  const onSort = (column: string, add: boolean) => {
    const next = choose(chosenKeys.current, column, add);
    chosenKeys.current = next;
    sorting?.onSort(next);
  };
  const table = useTable({ features, columns: definitions, data, state, manualSorting: sorting?.by !== "here" });
  const sortedRows = table.getRowModel().rows;
  const count = props.rowAt ? (props.total ?? 0) : sortedRows.length;
  const rowAt = props.rowAt ?? ((index: number) => sortedRows[index]?.original);

  const long = useRef(longScroll(0, 0));
  long.current = longScroll(count * rowHeight, scroller.current?.clientHeight ?? 0);
  const { speed } = long.current;
  const seen = useFixedRows(scroller, long, count, rowHeight);
  const onScreen = useRef(seen);
  if (!printing) onScreen.current = seen;
  const { first: firstShown, end, offset } = onScreen.current;
  const items = Array.from({ length: end - firstShown }, (_, i) => firstShown + i);
  // Pixels by which rows stand above their place among all rows.
  const lift = speed === 1 ? 0 : offset - offset / speed;
  const last = end > firstShown ? end - 1 : -1;
  useEffect(() => {
    if (last >= 0) onRange?.(firstShown, last);
  }, [firstShown, last, onRange]);
  useEffect(() => {
    if (onNearEnd && last >= 0 && last >= sortedRows.length - 10) onNearEnd();
  }, [last, sortedRows.length, onNearEnd]);

  const template = columns.map((column) => column.width).join(" ");
  const current = Math.min(focused, Math.max(0, count - 1));

  const moveTo = (index: number) => {
    const next = Math.max(0, Math.min(count - 1, index));
    setFocused(next);
    const box = scroller.current;
    if (box) {
      const from = box.scrollTop * speed;
      const to = offsetFor(next * rowHeight, rowHeight, from, box.clientHeight);
      if (to !== from) box.scrollTop = to / speed;
    }
    const row = rowAt(next);
    awaited.current = row ? undefined : next;
    if (row) onSelect?.(row);
    const focus = () =>
      scroller.current
        ?.querySelector<HTMLElement>(`[data-index="${next}"]`)
        ?.focus({ preventScroll: long.current.speed !== 1 });
    requestAnimationFrame(speed === 1 ? focus : () => requestAnimationFrame(focus));
  };

  // The row takes the place of its stand-in, which had the focus.
  useEffect(() => {
    const at = awaited.current;
    const row = at === undefined ? undefined : rowAt(at);
    if (at === undefined || !row) return;
    awaited.current = undefined;
    const active = document.activeElement;
    if (active && active !== document.body && !scroller.current?.contains(active)) return;
    scroller.current?.querySelector<HTMLElement>(`[data-index="${at}"]`)?.focus({ preventScroll: true });
    onSelect?.(row);
  });

  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    const row = rowAt(current);
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 300) / rowHeight) - 2);
    if (isMenuKey(event) && row && menu) {
      openMenu(below(event.target as Element), menu(row));
    } else if (event.target instanceof Element && event.target.closest("[role=columnheader]")) {
      return;
    } else if (event.key === "ArrowDown") moveTo(current + 1);
    else if (event.key === "ArrowUp") moveTo(current - 1);
    else if (event.key === "PageDown") moveTo(current + page);
    else if (event.key === "PageUp") moveTo(current - page);
    else if (event.key === "Home") moveTo(0);
    else if (event.key === "End") moveTo(count - 1);
    else if (event.key === "Enter" && row && event.target instanceof Element && event.target.matches("[role=row]")) {
      onOpen?.(row);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div
      ref={scroller}
      className="table"
      role="grid"
      aria-label={props.label}
      aria-rowcount={(props.total ?? count) + 1}
      aria-colcount={columns.length}
      tabIndex={count === 0 ? 0 : -1}
      style={{
        ...(props.fit ? { flex: "0 1 auto", height: Math.max(2, count) * rowHeight + 28 } : {}),
        ...({ "--paper-zoom": Math.min(0.8, PAPER_WIDTH / least) } as CSSProperties),
      }}
      onKeyDown={onKeyDown}
    >
      <div className="table-head" role="rowgroup" style={{ minWidth: least }}>
        <div role="row" aria-rowindex={1} className="table-row" style={{ gridTemplateColumns: template }}>
          {columns.map((column) => (
            <HeaderCell key={column.id} column={column} sorting={sorting} onSort={onSort} />
          ))}
        </div>
      </div>
      {count === 0 && (
        <div role="rowgroup" className="table-none">
          <div role="row">
            <div role="gridcell" className="muted">
              {search.q === undefined ? "No row." : "No row matches the search."}
            </div>
          </div>
        </div>
      )}
      <div role="rowgroup" className="table-body" style={{ height: long.current.height, minWidth: least }}>
        {items.map((index) => {
          const row = rowAt(index);
          if (!row) {
            return (
              <div
                key={`row ${index}`}
                role="row"
                className="table-row"
                data-index={index}
                aria-rowindex={index + 2}
                tabIndex={index === current ? 0 : -1}
                style={{
                  gridTemplateColumns: template,
                  height: rowHeight,
                  transform: `translateY(${index * rowHeight - lift}px)`,
                }}
              >
                <div role="gridcell" className="cell muted">
                  …
                </div>
              </div>
            );
          }
          const selected = isSelected?.(row) ?? false;
          return (
            <LitRow
              key={rowKey(row)}
              functions={functions?.(row) ?? NONE}
              role="row"
              className="table-row"
              data-index={index}
              data-dimmed={isDimmed?.(row) || undefined}
              aria-rowindex={index + 2}
              aria-selected={onSelect ? selected : undefined}
              tabIndex={index === current ? 0 : -1}
              style={{
                gridTemplateColumns: template,
                height: rowHeight,
                transform: `translateY(${index * rowHeight - lift}px)`,
              }}
              onFocus={() => setFocused(index)}
              onClick={() => {
                // A row that the page has selected by itself is not yet chosen by the user.
                const key = rowKey(row);
                if (!onSelect || (selected && chosen.current === key)) onOpen?.(row);
                else onSelect(row);
                chosen.current = key;
              }}
              onDoubleClick={() => onOpen?.(row)}
              onContextMenu={(event) => {
                if (!menu) return;
                event.preventDefault();
                onSelect?.(row);
                openMenu({ x: event.clientX, y: event.clientY }, menu(row));
              }}
            >
              {columns.map((column) => (
                <div key={column.id} role="gridcell" className={column.numeric ? "cell numeric" : "cell"}>
                  {column.cell(row)}
                </div>
              ))}
            </LitRow>
          );
        })}
      </div>
    </div>
  );
}

/** Pixels between two columns, and beside the first and the last; as in tables.css. */
const GAP = 12;

/** Pixels below which the columns do not fit beside each other. */
function leastWidth(columns: readonly { width: string }[]): number {
  const least = (track: string) => Number(/(\d+)px/.exec(track)?.[1] ?? 0);
  return columns.reduce((sum, { width }) => sum + least(width), 0) + GAP * (columns.length + 1);
}

function subjectFirst<Row>(columns: readonly Column<Row>[]): Column<Row>[] {
  return [...columns.filter((column) => column.isSubject), ...columns.filter((column) => !column.isSubject)];
}

const NONE: readonly string[] = [];

/** A row that is lit together with its functions elsewhere. */
export function LitRow({ functions, ...rest }: ComponentProps<"div"> & { functions: readonly string[] }) {
  return <div {...rest} {...useLit(functions)} />;
}

interface HeaderCellProps<Row> {
  column: Column<Row>;
  sorting: Sorting | undefined;
  onSort: (column: string, add: boolean) => void;
}

function HeaderCell<Row>({ column, sorting, onSort }: HeaderCellProps<Row>) {
  const keys = sorting?.keys ?? NO_KEYS;
  const sortsBy = column.sortsBy ?? column.id;
  const rank = keys.findIndex((key) => key.column === sortsBy);
  const key = keys[rank];
  const sortable =
    sorting !== undefined &&
    (sorting.by === "here" ? column.value !== undefined : (sorting.sortable ?? []).includes(sortsBy));
  const direction = key && (isDescending(column, key) ? "descending" : "ascending");
  return (
    <div
      role="columnheader"
      // Only the column that decides first: a screen reader expects one.
      aria-sort={rank === 0 ? direction : undefined}
      className={column.numeric ? "cell numeric" : "cell"}
      title={sortable ? `${column.definition}. Shift+click: sort by this in addition` : column.definition}
    >
      {sortable ? (
        <button
          type="button"
          className="sort"
          data-active={key !== undefined || undefined}
          aria-description={rank > 0 ? `${direction}, decides among equals as number ${rank + 1}` : undefined}
          onClick={(event) => onSort(sortsBy, event.shiftKey)}
        >
          {column.header}
          <span aria-hidden="true">
            {direction === undefined ? "" : direction === "descending" ? " ▾" : " ▴"}
            {key && keys.length > 1 && <span className="sort-rank">{rank + 1}</span>}
          </span>
        </button>
      ) : (
        <span>{column.header}</span>
      )}
    </div>
  );
}

/** The rows as tab-separated text, for a spreadsheet. */
export function toTsv<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): string {
  const usable = columns.filter((column) => column.value !== undefined);
  const clean = (value: number | string) => String(value).replace(/[\t\n\r]/g, " ");
  const lines = rows.map((row) => usable.map((column) => clean(column.value?.(row) ?? "")).join("\t"));
  return [usable.map((column) => column.header).join("\t"), ...lines].join("\n");
}

/** What a column is in a file. */
export type SavedColumn<Row> = Pick<Column<Row>, "header" | "value">;

/** The rows as comma-separated text (RFC 4180). */
export function toCsv<Row>(columns: readonly SavedColumn<Row>[], rows: readonly Row[]): string {
  const usable = columns.filter((column) => column.value !== undefined);
  // A cell that a spreadsheet would take for a formula is text.
  const cell = (value: number | string) => {
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = rows.map((row) => usable.map((column) => cell(column.value?.(row) ?? "")).join(","));
  return [usable.map((column) => cell(column.header)).join(","), ...lines, ""].join("\r\n");
}

/** Lets the browser save the rows. */
export function downloadCsv<Row>(columns: readonly SavedColumn<Row>[], rows: readonly Row[], name: string): void {
  const address = URL.createObjectURL(new Blob([toCsv(columns, rows)], { type: "text/csv;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
