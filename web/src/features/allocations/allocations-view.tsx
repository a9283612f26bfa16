// Every block that was allocated in the window: allocation, free, threads, both stacks.
import "./allocations.css";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { getJson } from "../../api/client.ts";
import { documentQuery } from "../../api/queries.ts";
import type { Allocation, Allocations } from "../../api/types.ts";
import { formatCount, formatDuration, formatExact, formatInstant, plural } from "../../lib/format.ts";
import { bareName } from "../../lib/names.ts";
import { type SortKey, writeKeys } from "../../lib/sorting.ts";
import { allocatorName, allocatorPlace, frameName } from "../../lib/stack.ts";
import { bytesColumn, countColumn } from "../../ui/columns.tsx";
import { Button } from "../../ui/controls.tsx";
import { type Column, DataTable, downloadCsv, toTsv } from "../../ui/data-table.tsx";
import { allocatorMenu, useFunctionMenu } from "../../ui/function-menu.ts";
import { useCopy, useNotice } from "../../ui/notice.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { usePagedRows } from "../../ui/paged-rows.ts";
import { useSearch } from "../../ui/search.tsx";
import { useSorting } from "../../ui/sorting.ts";
import { Stack } from "../../ui/stack.tsx";
import { Answer, Empty } from "../../ui/states.tsx";
import { ViewBar } from "../../ui/view-bar.tsx";
import { SizeClassBars } from "./size-class-bars.tsx";

const PAGE = 200;
/** Rows that are saved at once. */
const MOST_SAVED = 100_000;
const NO_ROWS: readonly Allocation[] = [];
const SORTABLE = ["born", "size", "lifetime", "address", "thread", "free_thread", "function"] as const;
/** At the server the smallest and A come first; here figures begin with the largest. */
const turned = ({ column, reversed }: SortKey): SortKey => ({
  column,
  reversed: column === "function" ? reversed : !reversed,
});

export function AllocationsView() {
  const { search, subject, go } = usePage();
  const request = useRequest();
  const copy = useCopy();
  const notice = useNotice();
  const functionMenu = useFunctionMenu();
  const find = useSearch();
  const nameOf = useThreadNames();
  const columns = useMemo(() => columnsFor(nameOf), [nameOf]);
  const [chosen, setChosen] = useState<Allocation>();
  // Numbers begin with the largest; allocations, unless asked otherwise, with the first.
  const sorting = useSorting({ column: "born", reversed: true }, SORTABLE);
  const parameters = {
    ...request.window,
    ...request.filters,
    site: search.site,
    search: find.asked,
    sort: writeKeys(sorting.keys.map(turned)),
  };
  const paged = usePagedRows<Allocations, Allocation>({
    key: [subject.recording, "allocations pages", parameters, subject.revision],
    pageRows: PAGE,
    fetchPage: (offset, limit, signal) =>
      getJson<Allocations>(
        `recordings/${encodeURIComponent(subject.recording)}/allocations`,
        { ...parameters, limit, offset },
        signal,
      ),
    rowsOf: (document) => document.allocations,
    totalOf: (document) => document.total,
  });
  const { first } = paged;
  const isChosen = (row: Allocation | undefined) => row !== undefined && String(row.index) === search.row;
  const selected = isChosen(chosen) ? chosen : (paged.head.find(isChosen) ?? paged.head[0]);
  return (
    <div className="split-view">
      <div className="table-view">
        <ViewBar>
          {first && (
            <span className="muted">
              {formatCount(first.total)} blocks were allocated in this window
              {find.active && ", by functions that match the search"}
            </span>
          )}
          {search.site && (
            <span className="chip">
              <b>site</b> {search.site}
              <button type="button" aria-label="Remove filter site" onClick={() => go({ site: undefined })}>
                ✕
              </button>
            </span>
          )}
          <span className="spring" />
          <Button
            quiet
            onClick={() => copy(toTsv(columns, paged.head), plural(paged.head.length, "row"))}
            title="Rows that are loaded, tab separated"
          >
            Copy table
          </Button>
          <Button
            quiet
            title={`All rows, up to ${formatCount(MOST_SAVED)}`}
            onClick={() =>
              void paged
                .all(MOST_SAVED)
                .then((rows) => downloadCsv(columns, rows, "allocations.csv"))
                .catch((error: unknown) => notice(error instanceof Error ? error.message : String(error)))
            }
          >
            CSV
          </Button>
        </ViewBar>
        <SizeClassBars />
        <Answer query={{ ...paged, data: first }} what="the allocations">
          {() =>
            paged.total === 0 ? (
              <Empty title="No block">
                <p>No block allocated in this window passes the filters{find.active ? " and the search" : ""}.</p>
              </Empty>
            ) : (
              <DataTable
                label="Allocations"
                rows={NO_ROWS}
                rowAt={paged.rowAt}
                onRange={paged.onRange}
                columns={columns}
                rowKey={(row) => String(row.index)}
                total={paged.total}
                sorting={sorting}
                isSelected={(row) => row.index === selected?.index}
                functions={(row) => row.stack.map(frameName)}
                onSelect={(row) => {
                  setChosen(row);
                  go({ row: String(row.index) }, { replace: true });
                }}
                onOpen={(row) => go({ site: row.site }, { view: "sites" })}
                menu={(row) => [
                  { label: "Open its site", hint: "Enter", run: () => go({ site: row.site }, { view: "sites" }) },
                  {
                    label: "Live blocks at its allocation",
                    run: () => go({ at: row.born_ns, metric: undefined, window: undefined }, { view: "flamegraph" }),
                  },
                  { label: "Copy address", run: () => copy(row.address, "the address") },
                  ...allocatorMenu(row.stack, functionMenu),
                ]}
              />
            )
          }
        </Answer>
      </div>
      {selected && <Details block={selected} nameOf={nameOf} />}
    </div>
  );
}

/** What a thread is called, by its number in the recording. */
type NameOf = (thread: number) => string;

function useThreadNames(): NameOf {
  const { subject } = usePage();
  const { data } = useQuery(documentQuery(subject, "threads", {}));
  return useMemo(() => {
    const names = new Map(data?.threads.map((thread) => [thread.id, thread.name]));
    return (id) => names.get(id) || `thread ${id}`;
  }, [data]);
}

function Details({ block, nameOf }: { block: Allocation; nameOf: NameOf }) {
  const { go } = usePage();
  return (
    <aside className="side" aria-label="The selected block">
      <h2>
        <span className="mono">{block.address}</span> <span className="muted">{formatExact(block.size, "bytes")}</span>
      </h2>
      <dl className="facts-list">
        <div>
          <dt>Allocated</dt>
          <dd>
            {formatInstant(block.born_ns, 1000)} by <span className="mono">{block.function}</span>,{" "}
            <ThreadName id={block.thread} nameOf={nameOf} />
          </dd>
        </div>
        <div>
          <dt>Freed</dt>
          <dd>
            {block.died_ns == null
              ? "never"
              : `${formatInstant(block.died_ns, 1000)}, after ${formatDuration(block.died_ns - block.born_ns)}`}
            {block.free_thread != null && (
              <>
                , <ThreadName id={block.free_thread} nameOf={nameOf} />
              </>
            )}
          </dd>
        </div>
        {(block.previous != null || block.next != null) && (
          <div>
            <dt>Chain</dt>
            <dd>
              {block.previous != null && `made by realloc from block ${formatCount(block.previous)}`}
              {block.previous != null && block.next != null && "; "}
              {block.next != null && `turned by realloc into block ${formatCount(block.next)}`}
            </dd>
          </div>
        )}
      </dl>
      <p>
        <Button onClick={() => go({ site: block.site }, { view: "sites" })}>Open its site</Button>
      </p>
      <Stack stack={block.stack} label="Allocated by, innermost first" />
      {block.died_ns != null && <Stack stack={block.free_stack} label="Freed by, innermost first" />}
    </aside>
  );
}

function ThreadName({ id, nameOf, className }: { id: number; nameOf: NameOf; className?: string | undefined }) {
  return (
    <span className={className} title={`${nameOf(id)}, thread ${id}`} data-thread={id}>
      {nameOf(id)}
    </span>
  );
}

const columnsFor = (nameOf: NameOf): Column<Allocation>[] => [
  {
    ...countColumn(
      { id: "index", header: "Block", definition: "Position among all allocations", width: "76px" },
      (row: Allocation) => row.index,
    ),
    sortsBy: "born",
  },
  {
    id: "address",
    header: "Address",
    definition: "Where it is or was",
    width: "108px",
    largestFirst: true,
    value: (row) => row.address,
    cell: (row) => <span className="mono">{row.address}</span>,
  },
  bytesColumn({ id: "size", header: "Size", definition: "Requested bytes", width: "68px" }, (row) => row.size),
  {
    id: "born",
    header: "Allocated",
    definition: "When it was allocated",
    width: "78px",
    numeric: true,
    value: (row) => row.born_ns,
    cell: (row) => formatInstant(row.born_ns, 1e5),
  },
  {
    id: "lifetime",
    header: "Lifetime",
    definition: "From allocation to free; empty if it was never freed",
    width: "78px",
    numeric: true,
    value: (row) => (row.died_ns == null ? "" : row.died_ns - row.born_ns),
    cell: (row) =>
      row.died_ns == null ? <span className="warn">never freed</span> : formatDuration(row.died_ns - row.born_ns),
  },
  {
    id: "thread",
    header: "Thread",
    definition: "Thread that allocated it; sorted by its number",
    width: "84px",
    largestFirst: true,
    value: (row) => nameOf(row.thread),
    cell: (row) => <ThreadName id={row.thread} nameOf={nameOf} />,
  },
  {
    id: "free_thread",
    header: "Freed by",
    definition: "Thread that freed it, sorted by its number; empty if it was never freed",
    width: "84px",
    largestFirst: true,
    value: (row) => (row.free_thread == null ? "" : nameOf(row.free_thread)),
    cell: (row) =>
      row.free_thread != null && (
        <ThreadName
          id={row.free_thread}
          nameOf={nameOf}
          className={row.free_thread === row.thread ? "muted" : "warn"}
        />
      ),
  },
  {
    id: "function",
    isSubject: true,
    header: "Allocated by",
    definition: "Innermost function of the stack that is of no standard library and no wrapper of the allocator",
    width: "minmax(220px, 2fr)",
    value: (row) => allocatorName(row.stack, row.site),
    cell: (row) => (
      <>
        <span className="mono" title={allocatorName(row.stack, row.site)}>
          {bareName(allocatorName(row.stack, row.site), 160)}
        </span>{" "}
        <span className="muted">{allocatorPlace(row.stack)}</span>
      </>
    ),
  },
];
