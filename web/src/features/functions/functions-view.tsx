// Functions with flat and cumulative sums, as in pprof; also by file, module, thread or site.
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { getJson } from "../../api/client.ts";
import type { FunctionRow, Functions } from "../../api/types.ts";
import { formatExact, formatPercent, formatValue, plural } from "../../lib/format.ts";
import { identityOf, isChosen } from "../../lib/identity.ts";
import { location, shortName } from "../../lib/names.ts";
import { exactly, moduleNamed, readPattern, serverPattern } from "../../lib/pattern.ts";
import { GROUPS, type GroupName, readSort, writeSort } from "../../lib/search-params.ts";
import { Button, Select, Share } from "../../ui/controls.tsx";
import { type Column, DataTable, toTsv } from "../../ui/data-table.tsx";
import { useFunctionMenu } from "../../ui/function-menu.ts";
import type { MenuItem } from "../../ui/menu.tsx";
import { useCopy } from "../../ui/notice.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { Answer, Empty } from "../../ui/states.tsx";

const PAGE = 400;
const SORTABLE = ["flat", "cum", "name"] as const;

const GROUP_TEXT: Record<GroupName, string> = {
  function: "Function",
  program: "Program function",
  file: "Source file",
  module: "Module",
  thread: "Thread",
  site: "Site",
};

/** A row with the running sum of pprof's `sum%`; only where rows are in the order of `flat`. */
interface RankedRow extends FunctionRow {
  sum: number | undefined;
}

export function FunctionsView() {
  const { search, subject, go } = usePage();
  const request = useRequest();
  const copy = useCopy();
  const by = search.by ?? "function";
  const { column: sort, reversed } = readSort(search.sort, SORTABLE, { column: "flat", reversed: false });
  const pattern = readPattern(search.q ?? "");
  const parameters = {
    ...request.metric,
    ...request.filters,
    by,
    sort,
    ascending: reversed || undefined,
    search: pattern.kind === "valid" ? serverPattern(pattern.text) : undefined,
    limit: PAGE,
  };
  const query = useInfiniteQuery({
    queryKey: [subject.recording, "functions pages", parameters, subject.revision],
    queryFn: ({ pageParam, signal }) =>
      getJson<Functions>(
        `recordings/${encodeURIComponent(subject.recording)}/functions`,
        { ...parameters, offset: pageParam },
        signal,
      ),
    initialPageParam: 0,
    getNextPageParam: (last, pages) => {
      const have = pages.reduce((sum, page) => sum + page.rows.length, 0);
      return have < last.total_rows && last.rows.length > 0 ? have : undefined;
    },
    placeholderData: keepPreviousData,
  });

  const first = query.data?.pages[0];
  const ranked = useMemo(() => {
    let sum = 0;
    return (query.data?.pages ?? []).flatMap((page) =>
      page.rows.map((row): RankedRow => {
        sum += row.flat;
        return { ...row, sum: sort === "flat" && !reversed && !search.q ? sum : undefined };
      }),
    );
  }, [query.data, sort, reversed, search.q]);
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
          : { focus: exactly(row.name) };
    return [
      { label: "Copy name", run: () => copy(row.name, "the name") },
      { label: "Only this", run: () => go({ filters: { ...search.filters, ...filter }, by: undefined }) },
    ];
  };
  const open = (row: RankedRow) => {
    if (by === "site") go({ site: row.id }, { view: "sites" });
    else if (by === "function" || by === "program")
      go({ q: undefined, root: undefined, selected: identityOf(row) }, { view: "flamegraph" });
  };

  return (
    <div className="table-view">
      <div className="view-bar">
        <Select
          label="A row is a"
          value={by}
          choices={GROUPS.map((value) => ({ value, label: GROUP_TEXT[value] }))}
          onChange={(value) => go({ by: value === "function" ? undefined : value })}
        />
        {first && (
          <span className="muted">
            {plural(first.total_rows, "row")}, total <b className="strong">{formatValue(first.total, first.unit)}</b>
          </span>
        )}
        <span className="spring" />
        <Button
          quiet
          onClick={() => copy(toTsv(columns, ranked), plural(ranked.length, "row"))}
          title="Rows that are loaded, tab separated"
        >
          Copy table
        </Button>
      </div>
      <Answer query={{ ...query, data: first }} what="the functions">
        {() =>
          ranked.length === 0 ? (
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
              rows={ranked}
              columns={columns}
              rowKey={(row) => row.id}
              total={first?.total_rows ?? ranked.length}
              sorting={{
                by: "server",
                column: sort,
                reversed,
                sortable: SORTABLE,
                onSort: (column, back) => go({ sort: writeSort({ column, reversed: back }) }, { replace: true }),
              }}
              isSelected={(row) => isChosen(row, search.selected)}
              onSelect={(row) => go({ selected: identityOf(row) }, { replace: true })}
              functions={nameOf}
              onOpen={open}
              menu={menu}
              onNearEnd={() => {
                if (query.hasNextPage && !query.isFetchingNextPage) void query.fetchNextPage();
              }}
            />
          )
        }
      </Answer>
    </div>
  );
}

const nameOf = (row: RankedRow) => [row.name];

function columnsFor({ unit, total }: Functions, by: GroupName): Column<RankedRow>[] {
  const other = unit === "bytes" ? "count" : "bytes";
  const bar = (value: number) => <Share part={Math.abs(value) / Math.abs(total)}>{formatPercent(value / total)}</Share>;
  const what =
    by === "function"
      ? "the function itself called the allocator"
      : by === "program"
        ? "it is the innermost function that is of no standard library and no wrapper of the allocator"
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
      id: "flat_percent",
      header: "Flat %",
      definition: "Flat as a part of the total",
      width: "84px",
      numeric: true,
      value: (row) => row.flat / total,
      cell: (row) => bar(row.flat),
    },
    {
      id: "sum",
      header: "Sum %",
      definition: "Flat of this and all rows above, as a part of the total; only in the order of flat",
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
      id: "cum_percent",
      header: "Cum %",
      definition: "Cum as a part of the total",
      width: "84px",
      numeric: true,
      value: (row) => row.cum / total,
      cell: (row) => bar(row.cum),
    },
    {
      id: "flat_other",
      header: other === "count" ? "Blocks" : "Bytes",
      definition: `Flat in ${other === "count" ? "blocks" : "bytes"}`,
      width: "80px",
      numeric: true,
      value: (row) => row.flat_other,
      cell: (row) => <span title={formatExact(row.flat_other, other)}>{formatValue(row.flat_other, other)}</span>,
    },
    {
      id: "name",
      header: GROUP_TEXT[by],
      definition: "Name; the context menu (right click, Shift+F10) has what can be done with it",
      width: "minmax(220px, 3fr)",
      value: (row) => row.name,
      cell: (row) => (
        <span className="mono" title={shortName(row.name, 400)}>
          {shortName(row.name, 200)}
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
        id: "place",
        header: "Source",
        definition: "Source file and line, where debug information has them",
        width: "minmax(136px, 1fr)",
        value: (row) => location(row.file, row.line) ?? "",
        cell: (row) => (
          <span className="muted" title={row.file ?? undefined}>
            {location(row.file, row.line)}
          </span>
        ),
      },
    );
  }
  return columns;
}
