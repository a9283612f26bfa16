// Whose blocks hold pages in memory that could be given back without them.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { documentQuery } from "../../api/queries.ts";
import { reportHas } from "../../api/report.ts";
import type { PinGroup, PinRow, Pins, PinUnit } from "../../api/types.ts";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatExact,
  formatInstant,
  formatPercent,
  plural,
} from "../../lib/format.ts";
import { identityOf, isChosen } from "../../lib/identity.ts";
import { memoryMoment } from "../../lib/moment.ts";
import { bareName, location } from "../../lib/names.ts";
import { readPattern } from "../../lib/pattern.ts";
import { pagesOf } from "../../lib/pins.ts";
import { PIN_GROUPS, PIN_UNITS } from "../../lib/search-params.ts";
import { sortedRows } from "../../lib/sorting.ts";
import { bytesColumn, countColumn, functionColumn, placeColumn } from "../../ui/columns.tsx";
import { Button, Segmented, Share } from "../../ui/controls.tsx";
import { type Column, DataTable, downloadCsv, toTsv } from "../../ui/data-table.tsx";
import { useFunctionMenu } from "../../ui/function-menu.ts";
import type { MenuItem } from "../../ui/menu.tsx";
import { useCopy } from "../../ui/notice.tsx";
import { usePage } from "../../ui/page.ts";
import { useSorting } from "../../ui/sorting.ts";
import { Answer, Empty } from "../../ui/states.tsx";
import { Term } from "../../ui/term.tsx";
import { ViewBar } from "../../ui/view-bar.tsx";
import "./pins.css";

const LIMIT = 2000;

const GROUP_TEXT: Record<PinGroup, { label: string; title: string }> = {
  function: { label: "Function", title: "Functions anywhere on the backtraces of the blocks" },
  site: { label: "Site", title: "Allocating backtraces" },
  age: { label: "Age", title: "Blocks by how long they had lived" },
  thread: { label: "Thread", title: "Allocating threads" },
};

const UNIT_TEXT: Record<PinUnit, { label: string; title: string }> = {
  "4k": { label: "4 KiB", title: "Pages of the kernel, each of which is given back by itself" },
  "2M": { label: "2 MiB", title: "Huge pages: ranges of 2 MiB that are wholly resident, given back as a whole" },
  slab: {
    label: "Slab",
    title: "What the allocator gives back as a whole: slabs of jemalloc, spans of tcmalloc, pages of mimalloc",
  },
};

export function PinsView() {
  const { search, subject, report, info, running, go } = usePage();
  const by: PinGroup = search.pins ?? "function";
  const unit = search.pin_unit;
  const at = memoryMoment(search, info, running);
  const query = useQuery(documentQuery(subject, "pins", report ? { by, unit } : { at, by, unit, limit: LIMIT }));
  const units = PIN_UNITS.filter((value) => !report || value === unit || reportHas("pins", { by, unit: value }));
  return (
    <div className="table-view">
      <ViewBar>
        <Segmented
          label="Pinned by"
          value={by}
          choices={PIN_GROUPS.map((value) => ({ value, ...GROUP_TEXT[value] }))}
          onChange={(value) => go({ pins: value === "function" ? undefined : value })}
        />
        {units.length > 1 && (
          <Segmented
            label="Given back as a whole"
            value={unit ?? "4k"}
            choices={units.map((value) => ({ value, ...UNIT_TEXT[value] }))}
            onChange={(value) => go({ pin_unit: value === "4k" ? undefined : value })}
          />
        )}
        {query.data && <Summary pins={query.data} />}
        {!report && (
          <Button
            title="The same pages as a flame graph: each at the innermost function below which all its blocks were allocated"
            onClick={() =>
              go({ metric: "live", at, pinned: true, freeing: undefined, root: undefined }, { view: "flamegraph" })
            }
          >
            Flame graph
          </Button>
        )}
      </ViewBar>
      <Answer query={query} what="the pages with live blocks">
        {(pins) => <Loaded pins={pins} by={by} />}
      </Answer>
    </div>
  );
}

function Summary({ pins }: { pins: Pins }) {
  const { count, bytes, live_bytes: live } = pins.pages;
  return (
    <span className="muted" data-testid="pinned">
      <Term definition="Resident pages that hold a part of a live block. What is free in them can serve later requests, but cannot be given back to the system.">
        {formatCount(count)} {pagesOf(pins.unit, count)} with live blocks
      </Term>
      ,{" "}
      <b className="strong" title={formatExact(bytes, "bytes")}>
        {formatBytes(bytes)}
      </b>
      , {formatPercent(live / (bytes || 1))} of it live, at {formatInstant(pins.look_ns ?? pins.at_ns)}
      {pins.look_ns == null
        ? "; without a look at the pages all of them count as resident"
        : pins.basis === "modelled" &&
          "; blocks from before the recording are not known, and may be in these pages, too"}
      {pins.unit_words !== "" && (
        <>
          ; <Term definition={pins.unit_words}>{pins.unit_basis === "modelled" ? "modelled" : "exact"}</Term>
        </>
      )}
      {pins.outside.count > 0 && `; ${plural(pins.outside.count, "page")} of 4 KiB left out`}
      {pins.total_rows > pins.rows.length &&
        `; the first ${formatCount(pins.rows.length)} rows of ${formatCount(pins.total_rows)}`}
    </span>
  );
}

function Loaded({ pins, by }: { pins: Pins; by: PinGroup }) {
  const { search, go } = usePage();
  const copy = useCopy();
  const functionMenu = useFunctionMenu();
  const columns = useMemo(() => columnsFor(pins, by), [pins, by]);
  const pattern = useMemo(() => readPattern(search.q ?? ""), [search.q]);
  const rows = useMemo(
    () => pins.rows.filter((row) => pattern.kind !== "valid" || pattern.test(row.function)),
    [pins.rows, pattern],
  );
  const sorting = useSorting("rank");
  if (pins.rows.length === 0) {
    return (
      <Empty title="No page is pinned">
        {pins.unit === "2M" ? (
          <p>
            No live block is in a range of 2 MiB that is wholly resident at this moment, so none is in a huge page.{" "}
            {plural(pins.outside.count, "page")} of 4 KiB with live blocks are counted by the unit 4 KiB.
          </p>
        ) : (
          <p>No live block is in a resident page at this moment.</p>
        )}
      </Empty>
    );
  }
  // As the table has them.
  const inOrder = () => sortedRows(rows, columns, sorting.keys);
  const asSubject = (row: PinRow) => ({ name: row.function, file: row.file ?? null, line: row.line ?? null });
  const menu = (row: PinRow): MenuItem[] => [
    ...(by === "site" && row.id
      ? [{ label: "Open the site", run: () => go({ site: row.id ?? undefined }, { view: "sites" }) } satisfies MenuItem]
      : []),
    ...(by === "thread" && row.id
      ? [
          {
            label: "Only this thread",
            run: () => go({ filters: { ...search.filters, thread: row.id ?? "" } }, { view: "functions" }),
          } satisfies MenuItem,
        ]
      : []),
    ...(by === "function" || by === "site" ? functionMenu(asSubject(row)) : []),
    {
      label: "Copy table",
      run: () => copy(toTsv(columns, inOrder()), plural(rows.length, "row")),
    },
  ];
  return (
    <div className="pins">
      <DataTable
        label={`Pinned pages by ${GROUP_TEXT[by].label.toLowerCase()}`}
        rows={rows}
        columns={columns}
        rowKey={(row) => `${row.id ?? ""} ${row.function} ${row.file ?? ""} ${row.born_first_ns}`}
        sorting={sorting}
        isSelected={(row) => isChosen({ name: row.function }, search.selected)}
        onSelect={(row) => {
          if (by === "function" || by === "site") go({ selected: identityOf(asSubject(row)) }, { replace: true });
        }}
        functions={(row) => [row.function]}
        menu={menu}
      />
      {by === "function" && pins.pairs.length > 0 && (
        <section className="pin-pairs" aria-labelledby="pin-pairs">
          <h2 id="pin-pairs">Held by two together</h2>
          <table className="small-table">
            <thead>
              <tr>
                <th className="numeric">Given back</th>
                <th className="numeric">Shared pages</th>
                <th>If the blocks of both were elsewhere</th>
              </tr>
            </thead>
            <tbody>
              {pins.pairs.map((pair) => (
                <tr key={pair.functions.join(" ")}>
                  <td className="numeric" title={formatExact(pair.given_back_bytes, "bytes")}>
                    {formatBytes(pair.given_back_bytes)}
                  </td>
                  <td className="numeric">{formatCount(pair.shared_pages)}</td>
                  <td className="mono" title={pair.functions.join("\n")}>
                    {pair.functions.map((name) => bareName(name)).join(" and ")}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      <ViewBar>
        <span className="spring" />
        <Button quiet onClick={() => copy(toTsv(columns, inOrder()), plural(rows.length, "row"))}>
          Copy table
        </Button>
        <Button quiet onClick={() => downloadCsv(columns, inOrder(), "pins.csv")}>
          CSV
        </Button>
      </ViewBar>
    </div>
  );
}

function columnsFor(pins: Pins, by: PinGroup): Column<PinRow>[] {
  const rank = new Map(pins.rows.map((row, i) => [row, i]));
  const columns: Column<PinRow>[] = [
    {
      id: "rank",
      header: "#",
      definition: "Order of relevance: most given back first; libraries and functions that hold nearly all pages last",
      width: "44px",
      value: (row) => rank.get(row) ?? 0,
      cell: (row) => formatCount((rank.get(row) ?? 0) + 1),
    },
    bytesColumn(
      {
        id: "given_back",
        header: "Given back",
        definition:
          "How much resident memory would shrink if these blocks were elsewhere, minus the bytes that would move with them",
        width: "96px",
      },
      (row) => row.given_back_bytes,
    ),
    bytesColumn(
      {
        id: "own",
        header: "Own bytes",
        definition: "Bytes of these blocks in resident pages, with what the allocator adds",
        width: "90px",
      },
      (row) => row.own_bytes,
    ),
    {
      id: "pages",
      header: "Pages",
      definition: "Pages that only these blocks hold",
      width: "120px",
      numeric: true,
      value: (row) => row.pages,
      cell: (row) => <Share part={row.pages / (pins.pages.count || 1)}>{formatCount(row.pages)}</Share>,
    },
    countColumn(
      { id: "blocks", header: "Blocks", definition: "Live blocks in resident pages", width: "76px" },
      (row) => row.blocks,
    ),
    {
      id: "allocated",
      header: "Allocated",
      definition: "Allocation of the oldest and of the youngest of these blocks",
      width: "150px",
      numeric: true,
      value: (row) => row.born_first_ns,
      cell: (row) => `${formatDuration(row.born_first_ns)} … ${formatDuration(row.born_last_ns)}`,
    },
    functionColumn(
      { id: "function", header: GROUP_TEXT[by].label, definition: GROUP_TEXT[by].title, width: "minmax(200px, 3fr)" },
      (row) => row.function,
      (row) => row.file,
      (row) => row.library,
    ),
  ];
  if (by === "function" || by === "site") {
    columns.push(
      placeColumn(
        {
          id: "place",
          header: "Source",
          definition: "Source file and line, where debug information has them",
          width: "minmax(120px, 1fr)",
        },
        (row) => location(row.file, row.line),
      ),
    );
  }
  return columns;
}
