// Who allocates how often: allocations a second by function of the program, and what reallocs moved.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Churn, ChurnRow } from "../../api/types.ts";
import {
  formatBytes,
  formatCount,
  formatExact,
  formatInstant,
  formatPercent,
  formatShortCount,
  plural,
} from "../../lib/format.ts";
import { identityOf, isChosen } from "../../lib/identity.ts";
import { location, rowName, shortName } from "../../lib/names.ts";
import { readPattern } from "../../lib/pattern.ts";
import { writeKeys } from "../../lib/sorting.ts";
import { placeColumn } from "../../ui/columns.tsx";
import { Button, Share } from "../../ui/controls.tsx";
import { type Column, DataTable, downloadCsv, toTsv } from "../../ui/data-table.tsx";
import { useFunctionMenu } from "../../ui/function-menu.ts";
import { useCopy, useNotice } from "../../ui/notice.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { type Sorting, useSorting } from "../../ui/sorting.ts";
import { Answer, Empty } from "../../ui/states.tsx";

const LIMIT = 2000;
/** Rows that are saved at once: as many as the server gives. */
const MOST_SAVED = 100_000;
const SORTABLE = ["allocations", "bytes", "temporary", "moved", "chain", "name", "source"] as const;

export function ChurnView() {
  const { search, subject, go } = usePage();
  const request = useRequest();
  const client = useQueryClient();
  const notice = useNotice();
  const sorting = useSorting("allocations", SORTABLE);
  const sort = writeKeys(sorting.keys);
  const parameters = { ...request.window, ...request.filters, sort };
  const query = useQuery(documentQuery(subject, "churn", { ...parameters, limit: LIMIT }));
  const save = async () => {
    try {
      const churn = await client.fetchQuery(documentQuery(subject, "churn", { ...parameters, limit: MOST_SAVED }));
      downloadCsv(columnsFor(churn), churn.rows.filter(rowTest(search.q)), "churn.csv");
      if (churn.total_rows > churn.rows.length)
        notice(`The first ${formatCount(churn.rows.length)} rows of ${formatCount(churn.total_rows)} were saved.`);
    } catch (error) {
      notice(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <div className="table-view">
      <div className="view-bar">
        {query.data && <Summary churn={query.data} />}
        <span className="spring" />
        <Button
          quiet
          title="The flame graph of what was freed, by the stacks that freed it"
          onClick={() => go({ metric: "freed", freeing: true, root: undefined }, { view: "flamegraph" })}
        >
          Freed by
        </Button>
        <Button quiet title={`All rows, up to ${formatCount(MOST_SAVED)}`} onClick={() => void save()}>
          CSV
        </Button>
      </div>
      <Answer query={query} what="who allocates how often">
        {(churn) => <Loaded churn={churn} sorting={sorting} />}
      </Answer>
    </div>
  );
}

function Summary({ churn: { total, from_ns, to_ns, rows, total_rows } }: { churn: Churn }) {
  return (
    <span className="muted" data-testid="churn">
      <b className="strong">{plural(total.allocations.count, "allocation")}</b>,{" "}
      {formatShortCount(total.allocations_per_second)} a second from {formatInstant(from_ns)} to {formatInstant(to_ns)};{" "}
      {formatPercent(total.temporary.count / (total.allocations.count || 1))} temporary;{" "}
      {plural(total.moved, "realloc")} moved {formatBytes(total.moved_bytes)}
      {total_rows > rows.length && `; the first ${formatCount(rows.length)} rows of ${formatCount(total_rows)}`}
    </span>
  );
}

function Loaded({ churn, sorting }: { churn: Churn; sorting: Sorting }) {
  const { search, go } = usePage();
  const copy = useCopy();
  const functionMenu = useFunctionMenu();
  const columns = useMemo(() => columnsFor(churn), [churn]);
  const rows = useMemo(() => churn.rows.filter(rowTest(search.q)), [churn.rows, search.q]);
  const named = (row: ChurnRow) => ({ name: row.function, module: row.module, file: row.file, line: row.line });
  if (rows.length === 0) {
    return (
      <Empty title="No row">
        <p>{search.q ? "Nothing matches the search in this window." : "Nothing was allocated in this window."}</p>
      </Empty>
    );
  }
  return (
    <DataTable
      label="Allocations a second by function"
      rows={rows}
      columns={columns}
      rowKey={(row) => `${row.function} ${row.module ?? ""} ${row.file ?? ""} ${row.line ?? ""}`}
      total={rows.length}
      sorting={sorting}
      isSelected={(row) => isChosen(named(row), search.selected)}
      onSelect={(row) => go({ selected: identityOf(named(row)) }, { replace: true })}
      onOpen={(row) =>
        go(
          { metric: "allocated", unit: "count", root: undefined, selected: identityOf(named(row)) },
          { view: "flamegraph" },
        )
      }
      functions={(row) => [row.function]}
      menu={(row) => [
        ...functionMenu(named(row)),
        { label: "Copy table", run: () => copy(toTsv(columns, rows), plural(rows.length, "row")) },
      ]}
    />
  );
}

/** Whether a row passes the search. */
function rowTest(text: string | undefined): (row: ChurnRow) => boolean {
  const pattern = readPattern(text ?? "");
  return (row) => pattern.kind !== "valid" || pattern.test(row.function);
}

function columnsFor({ total }: Churn): Column<ChurnRow>[] {
  return [
    {
      id: "rate",
      header: "A second",
      definition: "Allocations a second of the window",
      width: "84px",
      numeric: true,
      sortsBy: "allocations",
      value: (row) => row.allocations_per_second,
      cell: (row) => formatShortCount(row.allocations_per_second),
    },
    {
      id: "allocations",
      header: "Allocations",
      definition: "Blocks that were allocated in the window, those that realloc made included",
      width: "88px",
      numeric: true,
      value: (row) => row.allocations.count,
      cell: (row) => (
        <Share part={row.allocations.count / total.allocations.count}>{formatCount(row.allocations.count)}</Share>
      ),
    },
    {
      id: "bytes",
      header: "Bytes",
      definition: "What they held together",
      width: "96px",
      numeric: true,
      value: (row) => row.allocations.bytes,
      cell: (row) => (
        <span title={formatExact(row.allocations.bytes, "bytes")}>
          <Share part={row.allocations.bytes / total.allocations.bytes}>{formatBytes(row.allocations.bytes)}</Share>
        </span>
      ),
    },
    {
      id: "temporary",
      header: "Temporary",
      definition: "Of the allocations, those that were freed at once; the Recording view gives the rule",
      width: "88px",
      numeric: true,
      value: (row) => row.temporary.count,
      cell: (row) => (
        <span title={formatExact(row.temporary.count, "count")}>
          {formatPercent(row.temporary.count / (row.allocations.count || 1))}
        </span>
      ),
    },
    {
      id: "moved",
      header: "Moved",
      definition: "What reallocs moved to another address: copied, unless the kernel moved the pages",
      width: "80px",
      numeric: true,
      value: (row) => row.moved_bytes,
      cell: (row) =>
        row.reallocs === 0 ? (
          ""
        ) : (
          <span title={`${plural(row.reallocs, "realloc")}, ${formatCount(row.moved)} of them moved`}>
            {formatBytes(row.moved_bytes)}
          </span>
        ),
    },
    {
      id: "name",
      isSubject: true,
      header: "Program function",
      definition: "The innermost function that is of no standard library and no wrapper of the allocator",
      width: "minmax(160px, 2fr)",
      value: (row) => row.function,
      cell: (row) => (
        <span className="mono" title={shortName(row.function, 400)}>
          {rowName(row.function, row.file, 200)}
        </span>
      ),
    },
    {
      id: "chain",
      header: "Longest chain of reallocs",
      definition:
        "The block of this function that reallocs moved most: how often it was resized, and from where to where. Its order goes by the bytes moved",
      width: "minmax(190px, 3fr)",
      largestFirst: true,
      value: (row) => row.longest?.moved_bytes ?? 0,
      cell: (row) => <span title={chainText(row)}>{chainText(row)}</span>,
    },
    placeColumn(
      {
        id: "source",
        header: "Source",
        definition: "Source file and line of the declaration, where debug information has them",
        width: "minmax(110px, 1fr)",
      },
      (row) => location(row.file, row.line) ?? row.module,
    ),
  ];
}

/** `21 times, 96.0 MiB moved: 8 B → 4.00 MiB`. */
function chainText({ longest }: ChurnRow): string {
  if (!longest) return "";
  const sizes = `${formatBytes(longest.first_bytes)} → ${formatBytes(longest.last_bytes)}`;
  return `${plural(longest.reallocs, "time")}, ${formatBytes(longest.moved_bytes)} moved: ${sizes}`;
}
