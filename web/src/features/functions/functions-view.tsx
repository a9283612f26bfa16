// Functions with flat and cumulative sums, as in pprof; also by file, module, thread, site or size class.
import { useMemo } from "react";
import { getJson } from "../../api/client.ts";
import type { FunctionRow, Functions } from "../../api/types.ts";
import { formatExact, formatPercent, formatValue, plural } from "../../lib/format.ts";
import { identityOf, isChosen } from "../../lib/identity.ts";
import { location, rowName, shortName } from "../../lib/names.ts";
import { exactly, moduleNamed, readPattern, serverPattern } from "../../lib/pattern.ts";
import { GROUPS, type GroupName } from "../../lib/search-params.ts";
import { writeKeys } from "../../lib/sorting.ts";
import { functionsStatement } from "../../lib/sql-statements.ts";
import { Place, shareColumn } from "../../ui/columns.tsx";
import { Button, Select } from "../../ui/controls.tsx";
import { CopySql } from "../../ui/copy-sql.tsx";
import { type Column, DataTable, downloadCsv, toTsv } from "../../ui/data-table.tsx";
import { useFunctionMenu } from "../../ui/function-menu.ts";
import type { MenuItem } from "../../ui/menu.tsx";
import { useCopy, useNotice } from "../../ui/notice.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { usePagedRows } from "../../ui/paged-rows.ts";
import { useSorting } from "../../ui/sorting.ts";
import { Answer, Empty } from "../../ui/states.tsx";
import { ViewBar } from "../../ui/view-bar.tsx";

const PAGE = 400;
const SORTABLE = ["flat", "cum", "name", "other", "module", "source"] as const;

const GROUP_TEXT: Record<GroupName, string> = {
  function: "Function",
  program: "Program function",
  file: "Source file",
  module: "Module",
  thread: "Thread",
  site: "Site",
  size_class: "Size class",
};

/** A row with the running sum of pprof's `sum%`; only where rows are in the order of `flat`. */
interface RankedRow extends FunctionRow {
  sum: number | undefined;
}

export function FunctionsView() {
  const { search, subject, go } = usePage();
  const request = useRequest();
  const copy = useCopy();
  const notice = useNotice();
  // Where memory was asked for says more than who handed it out.
  const by = search.by ?? "program";
  const sorting = useSorting("flat", SORTABLE);
  const sort = writeKeys(sorting.keys);
  const pattern = readPattern(search.q ?? "");
  const parameters = {
    ...request.metric,
    ...request.filters,
    by,
    sort,
    search: pattern.kind === "valid" ? serverPattern(pattern.text) : undefined,
  };
  const paged = usePagedRows<Functions, FunctionRow>({
    key: [subject.recording, "functions pages", parameters, subject.revision],
    pageRows: PAGE,
    fetchPage: (offset, limit, signal) =>
      getJson<Functions>(
        `recordings/${encodeURIComponent(subject.recording)}/functions`,
        { ...parameters, limit, offset },
        signal,
      ),
    rowsOf: (document) => document.rows,
    totalOf: (document) => document.total_rows,
  });
  const { first } = paged;
  const inOrder = sort.startsWith("flat") && !search.q;
  // Running sums are known from the top on without a gap.
  const sums: number[] = [];
  if (inOrder) for (const row of paged.head) sums.push((sums.at(-1) ?? 0) + row.flat);
  const rowAt = (index: number): RankedRow | undefined => {
    const row = paged.rowAt(index);
    return row && { ...row, sum: sums[index] };
  };
  const columns = useMemo(() => (first ? columnsFor(first, by) : []), [first, by]);
  const functionMenu = useFunctionMenu();

  const menu = (row: RankedRow): MenuItem[] => {
    if (by === "function" || by === "program" || by === "site") {
      const items = functionMenu({ name: row.name, module: row.module, file: row.file, line: row.line });
      return by === "site"
        ? [{ label: "Open the site", run: () => go({ site: row.id }, { view: "sites" }) }, "separator", ...items]
        : items;
    }
    const filter =
      by === "thread"
        ? { thread: row.id.replace(/^t/, "") }
        : by === "module"
          ? { module: moduleNamed(row.name) }
          : by === "size_class"
            ? sizesOf(row)
            : { focus: exactly(row.name) };
    return [
      { label: "Copy name", run: () => copy(row.name, "the name") },
      { label: "Only this", run: () => go({ filters: { ...search.filters, ...filter }, by: undefined }) },
    ];
  };
  const open = (row: RankedRow) => {
    if (by === "site") go({ site: row.id }, { view: "sites" });
    else if (by === "size_class")
      go({ filters: { ...search.filters, ...sizesOf(row) }, root: undefined }, { view: "flamegraph" });
    else if (by === "function" || by === "program")
      go({ q: undefined, root: undefined, selected: identityOf(row) }, { view: "flamegraph" });
  };

  return (
    <div className="table-view">
      <ViewBar>
        <Select
          label="By"
          value={by}
          choices={GROUPS.map((value) => ({ value, label: GROUP_TEXT[value] }))}
          onChange={(value) => go({ by: value === "program" ? undefined : value })}
        />
        {first && (
          <span className="muted">
            {plural(first.total_rows, "row")},{" "}
            {first.total_matched !== undefined && first.total_matched !== null && (
              <>
                <b className="strong">{formatValue(first.total_matched, first.unit)}</b> of a{" "}
              </>
            )}
            total{first.total_matched === undefined ? "" : " of"}{" "}
            <b className="strong">{formatValue(first.total, first.unit)}</b>
          </span>
        )}
        <span className="spring" />
        <Button
          quiet
          onClick={() =>
            void paged
              .all(MOST_SAVED)
              .then((rows) => downloadCsv(columns, rows.map(unranked), `functions-by-${by}.csv`))
              .catch((error: unknown) => notice(error instanceof Error ? error.message : String(error)))
          }
        >
          CSV
        </Button>
        <Button
          quiet
          onClick={() => copy(toTsv(columns, paged.head.map(unranked)), plural(paged.head.length, "row"))}
          title="Rows that are loaded, tab separated"
        >
          Copy table
        </Button>
        <CopySql offer={functionsStatement(search, by, request.metric, sorting.keys)} />
      </ViewBar>
      <Answer query={{ ...paged, data: first }} what="the functions">
        {() =>
          paged.total === 0 ? (
            <Empty title="No row">
              <p>
                {search.q
                  ? "Nothing matches the search in this window."
                  : "No block in this window passes the filters."}
              </p>
            </Empty>
          ) : (
            <DataTable
              label={`Table by ${GROUP_TEXT[by].toLowerCase()}`}
              rows={NO_ROWS}
              rowAt={rowAt}
              onRange={paged.onRange}
              columns={columns}
              rowKey={(row) => row.id}
              total={paged.total}
              sorting={sorting}
              isSelected={(row) => isChosen(row, search.selected)}
              onSelect={(row) => go({ selected: identityOf(row) }, { replace: true })}
              functions={nameOf}
              onOpen={open}
              menu={menu}
            />
          )
        }
      </Answer>
    </div>
  );
}

/** Rows that are saved at once; the table has more only where a program has very many functions. */
const MOST_SAVED = 100_000;
const NO_ROWS: readonly RankedRow[] = [];

function unranked(row: FunctionRow): RankedRow {
  return { ...row, sum: undefined };
}

/** The filter that means a size class, whose id is its smallest size. */
function sizesOf({ id }: FunctionRow): { min_size: string; max_size: string } {
  return { min_size: id, max_size: String(Math.max(0, 2 * Number(id) - 1)) };
}

const nameOf = (row: RankedRow) => [row.name];

function columnsFor({ unit, total }: Functions, by: GroupName): Column<RankedRow>[] {
  const other = unit === "bytes" ? "count" : "bytes";
  const what =
    by === "function"
      ? "the function itself called the allocator"
      : by === "program"
        ? "it is the innermost function that is of no standard library and no wrapper of the allocator"
        : by === "size_class"
          ? "the requested size is in the class"
          : `allocated by the ${by} itself`;
  const columns: Column<RankedRow>[] = [
    {
      id: "flat",
      header: "Flat",
      definition: `Sum of blocks where ${what}`,
      width: "88px",
      numeric: true,
      value: (row) => row.flat,
      cell: (row) => <span title={formatExact(row.flat, unit)}>{formatValue(row.flat, unit)}</span>,
    },
    {
      ...shareColumn(
        { id: "flat_percent", header: "Flat %", definition: "Flat as a part of the total", width: "84px" },
        (row: RankedRow) => row.flat / total,
      ),
      sortsBy: "flat",
    },
    {
      id: "sum",
      header: "Sum %",
      definition:
        "Flat of this and all rows above, as a part of the total; only in the order of flat. It follows from the order of the rows, so that they cannot be sorted by it: the same in pprof",
      width: "64px",
      numeric: true,
      cell: (row) => (row.sum === undefined ? "" : formatPercent(row.sum / total)),
    },
    {
      id: "cum",
      header: "Cum",
      definition: "Sum of blocks with it anywhere on the stack; recursion counts once",
      width: "88px",
      numeric: true,
      value: (row) => row.cum,
      cell: (row) => <span title={formatExact(row.cum, unit)}>{formatValue(row.cum, unit)}</span>,
    },
    {
      ...shareColumn(
        { id: "cum_percent", header: "Cum %", definition: "Cum as a part of the total", width: "84px" },
        (row: RankedRow) => row.cum / total,
      ),
      sortsBy: "cum",
    },
    {
      id: "other",
      header: other === "count" ? "Blocks" : "Bytes",
      definition: `Flat in ${other === "count" ? "blocks" : "bytes"}`,
      width: "80px",
      numeric: true,
      value: (row) => row.flat_other,
      cell: (row) => <span title={formatExact(row.flat_other, other)}>{formatValue(row.flat_other, other)}</span>,
    },
    {
      id: "name",
      isSubject: true,
      header: GROUP_TEXT[by],
      definition: "Name; the context menu (right click, Shift+F10) has what can be done with it",
      width: "minmax(200px, 3fr)",
      value: (row) => row.name,
      cell: (row) => (
        <span className="mono" title={shortName(row.name, 400)}>
          {by === "size_class" ? row.name : rowName(row.name, row.file, 200)}
        </span>
      ),
    },
  ];
  if (by === "function" || by === "program" || by === "site") {
    columns.push(
      {
        id: "module",
        header: "Module",
        definition: "File name of the module",
        width: "minmax(80px, 1fr)",
        value: (row) => row.module ?? "",
        cell: (row) => <span className="muted">{row.module}</span>,
      },
      {
        id: "source",
        header: "Source",
        definition: "Source file and line, where debug information has them",
        width: "minmax(120px, 1fr)",
        value: (row) => location(row.file, row.line) ?? "",
        cell: (row) => <Place text={location(row.file, row.line) ?? ""} title={row.file ?? undefined} />,
      },
    );
  }
  return columns;
}
