// A virtualised table: columns with definitions, sorting here or at the server, keyboard, context menu.
import {
  type ColumnDef,
  createSortedRowModel,
  rowSortingFeature,
  sortFn_alphanumeric,
  sortFn_basic,
  sortFn_text,
  tableFeatures,
  useTable,
} from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type ComponentProps, type KeyboardEvent, type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { useLit } from "./lit.ts";
import { below, isMenuKey, type MenuItem, useMenu } from "./menu.tsx";

export interface Column<Row> {
  id: string;
  header: string;
  definition: string;
  /** A CSS grid track: `90px`, `minmax(200px, 1fr)`. */
  width: string;
  numeric?: boolean;
  /** What sorting and copying see; columns without it cannot be sorted here. */
  value?: (row: Row) => number | string;
  cell: (row: Row) => ReactNode;
}

export interface Sorting {
  /** `server`: rows come sorted, only columns in `sortable` can be chosen. */
  by: "here" | "server";
  column: string;
  reversed?: boolean;
  sortable?: readonly string[];
  onSort: (column: string, reversed: boolean) => void;
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
  rowHeight?: number;
  /** As high as its rows, where there is room; else it fills what is left. */
  fit?: boolean;
}

const features = tableFeatures({
  rowSortingFeature,
  sortedRowModel: createSortedRowModel(),
  sortFns: { alphanumeric: sortFn_alphanumeric, text: sortFn_text, basic: sortFn_basic },
});

export function DataTable<Row extends object>(props: DataTableProps<Row>) {
  const {
    rows,
    columns,
    rowKey,
    sorting,
    onOpen,
    onSelect,
    isSelected,
    isDimmed,
    menu,
    onNearEnd,
    functions,
    rowHeight = 26,
  } = props;
  const openMenu = useMenu();
  const scroller = useRef<HTMLDivElement>(null);
  const [focused, setFocused] = useState(0);

  const definitions = useMemo(
    () =>
      columns.map(
        (column): ColumnDef<typeof features, Row> => ({
          id: column.id,
          header: column.header,
          accessorFn: (row) => column.value?.(row),
          enableSorting: column.value !== undefined,
          sortFn: column.numeric ? "basic" : "alphanumeric",
          sortDescFirst: column.numeric ?? false,
        }),
      ),
    [columns],
  );
  const data = useMemo(() => [...rows], [rows]);
  const sortedColumn = columns.find((column) => column.id === sorting?.column);
  const descending = (sortedColumn?.numeric ?? false) !== (sorting?.reversed ?? false);
  const sortingId = sorting?.by === "here" ? sortedColumn?.id : undefined;
  const state = useMemo(
    () => ({ sorting: sortingId === undefined ? [] : [{ id: sortingId, desc: descending }] }),
    [sortingId, descending],
  );
  const table = useTable({ features, columns: definitions, data, state, manualSorting: sorting?.by !== "here" });
  const sortedRows = table.getRowModel().rows;

  const virtual = useVirtualizer({
    count: sortedRows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 12,
  });
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? -1;
  useEffect(() => {
    if (onNearEnd && last >= 0 && last >= sortedRows.length - 10) onNearEnd();
  }, [last, sortedRows.length, onNearEnd]);

  const template = columns.map((column) => column.width).join(" ");
  const current = Math.min(focused, Math.max(0, sortedRows.length - 1));

  const moveTo = (index: number) => {
    const next = Math.max(0, Math.min(sortedRows.length - 1, index));
    setFocused(next);
    virtual.scrollToIndex(next);
    const row = sortedRows[next]?.original;
    if (row) onSelect?.(row);
    requestAnimationFrame(() => scroller.current?.querySelector<HTMLElement>(`[data-index="${next}"]`)?.focus());
  };

  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    const row = sortedRows[current]?.original;
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
    else if (event.key === "End") moveTo(sortedRows.length - 1);
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
      aria-rowcount={(props.total ?? sortedRows.length) + 1}
      aria-colcount={columns.length}
      tabIndex={sortedRows.length === 0 ? 0 : -1}
      style={props.fit ? { flex: "0 1 auto", height: sortedRows.length * rowHeight + 28 } : undefined}
      onKeyDown={onKeyDown}
    >
      <div className="table-head" role="rowgroup">
        <div role="row" aria-rowindex={1} className="table-row" style={{ gridTemplateColumns: template }}>
          {columns.map((column) => (
            <HeaderCell key={column.id} column={column} sorting={sorting} descending={descending} />
          ))}
        </div>
      </div>
      <div role="rowgroup" className="table-body" style={{ height: virtual.getTotalSize() }}>
        {items.map((item) => {
          const row = sortedRows[item.index]?.original;
          if (!row) return null;
          const selected = isSelected?.(row) ?? false;
          return (
            <LitRow
              key={rowKey(row)}
              functions={functions?.(row) ?? NONE}
              role="row"
              className="table-row"
              data-index={item.index}
              data-dimmed={isDimmed?.(row) || undefined}
              aria-rowindex={item.index + 2}
              aria-selected={onSelect ? selected : undefined}
              tabIndex={item.index === current ? 0 : -1}
              style={{ gridTemplateColumns: template, height: rowHeight, transform: `translateY(${item.start}px)` }}
              onFocus={() => setFocused(item.index)}
              onClick={() => {
                if (selected || !onSelect) onOpen?.(row);
                else onSelect(row);
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

const NONE: readonly string[] = [];

/** A row that is lit together with its functions elsewhere. */
export function LitRow({ functions, ...rest }: ComponentProps<"div"> & { functions: readonly string[] }) {
  return <div {...rest} {...useLit(functions)} />;
}

interface HeaderCellProps<Row> {
  column: Column<Row>;
  sorting: Sorting | undefined;
  descending: boolean;
}

function HeaderCell<Row>({ column, sorting, descending }: HeaderCellProps<Row>) {
  const active = sorting?.column === column.id;
  const sortable =
    sorting !== undefined &&
    (sorting.by === "here" ? column.value !== undefined : (sorting.sortable ?? []).includes(column.id));
  const direction = active ? (descending ? "descending" : "ascending") : undefined;
  return (
    <div
      role="columnheader"
      aria-sort={direction}
      className={column.numeric ? "cell numeric" : "cell"}
      title={column.definition}
    >
      {sortable ? (
        <button
          type="button"
          className="sort"
          data-active={active || undefined}
          onClick={() => sorting.onSort(column.id, active ? !sorting.reversed : false)}
        >
          {column.header}
          <span aria-hidden="true">{active ? (descending ? " ▾" : " ▴") : ""}</span>
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
