// Who allocates, and who frees whose blocks.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Thread, Threads } from "../../api/types.ts";
import { formatDuration, formatExact, formatPercent, formatValue, plural } from "../../lib/format.ts";
import { sortedRows } from "../../lib/sorting.ts";
import { threadsStatement } from "../../lib/sql-statements.ts";
import { Button, Segmented } from "../../ui/controls.tsx";
import { CopySql } from "../../ui/copy-sql.tsx";
import { type Column, DataTable, downloadCsv, toTsv } from "../../ui/data-table.tsx";
import { useCopy } from "../../ui/notice.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { MatchCount, useSearch } from "../../ui/search.tsx";
import { useSorting } from "../../ui/sorting.ts";
import { Answer, Empty } from "../../ui/states.tsx";
import { ViewBar } from "../../ui/view-bar.tsx";
import { buildMatrix } from "./matrix.ts";
import "./threads.css";

export function ThreadsView() {
  const { subject } = usePage();
  const request = useRequest();
  const query = useQuery(documentQuery(subject, "threads", { ...request.window, ...request.filters }));
  return (
    <Answer query={query} what="the threads">
      {(threads) =>
        threads.threads.length === 0 ? (
          <Empty title="No thread">
            <p>No thread made an event in this recording.</p>
          </Empty>
        ) : (
          <Loaded threads={threads} />
        )
      }
    </Answer>
  );
}

function Loaded({ threads }: { threads: Threads }) {
  const { search, go } = usePage();
  const copy = useCopy();
  const request = useRequest();
  const unit = search.unit ?? "bytes";
  const columns = useMemo(() => columnsFor(unit), [unit]);
  const sorting = useSorting("allocated");
  const find = useSearch();
  const shown = useMemo(
    () => threads.threads.filter((thread) => find.hit(thread.name, String(thread.id), String(thread.os_thread))),
    [threads.threads, find],
  );
  const inOrder = () => sortedRows(shown, columns, sorting.keys);
  const only = (thread: Thread) => go({ filters: { ...search.filters, thread: String(thread.id) }, root: undefined });
  return (
    <div className="threads-view">
      <div className="table-view">
        <ViewBar>
          <Segmented
            label="Unit of threads"
            value={unit}
            choices={[
              { value: "bytes", label: "Bytes" },
              { value: "count", label: "Blocks" },
            ]}
            onChange={(value) => go({ unit: value === "count" ? "count" : undefined })}
          />
          <span className="muted">{plural(threads.threads.length, "thread")}</span>
          <MatchCount search={find} shown={shown.length} of={threads.threads.length} what="threads" />
          <span className="spring" />
          <Button quiet onClick={() => copy(toTsv(columns, inOrder()), plural(shown.length, "row"))}>
            Copy table
          </Button>
          <Button quiet onClick={() => downloadCsv(columns, inOrder(), "threads.csv")}>
            CSV
          </Button>
          <CopySql offer={threadsStatement(search, request.window, sorting.keys, unit)} />
        </ViewBar>
        <DataTable
          label="Threads"
          fit
          rows={shown}
          columns={columns}
          rowKey={(thread) => String(thread.id)}
          sorting={sorting}
          isSelected={(thread) => search.filters?.thread === String(thread.id)}
          onOpen={only}
          menu={(thread) => [
            { label: "Only blocks that this thread allocated", hint: "Enter", run: () => only(thread) },
            {
              label: "Its flame graph",
              run: () =>
                go(
                  { filters: { ...search.filters, thread: String(thread.id) }, root: undefined },
                  { view: "flamegraph" },
                ),
            },
            { label: "Copy name", run: () => copy(thread.name, "the thread's name") },
          ]}
        />
      </div>
      <Matrix threads={threads} unit={unit} />
    </div>
  );
}

function Matrix({ threads, unit }: { threads: Threads; unit: "bytes" | "count" }) {
  const matrix = useMemo(() => buildMatrix(threads, unit), [threads, unit]);
  if (matrix.total === 0) return null;
  if (threads.threads.length === 1) {
    return <p className="matrix muted">One thread: every block was freed by the thread that had allocated it.</p>;
  }
  return (
    <section className="matrix" aria-labelledby="matrix-title">
      <h2 id="matrix-title">
        Frees by thread{" "}
        <span className="muted">
          {formatPercent(matrix.across / matrix.total)} of {unit === "bytes" ? "bytes" : "blocks"} across threads
        </span>
      </h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls has to be reached by keys */}
      <section className="matrix-scroll" aria-label="Frees by thread, the matrix" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">
                <span className="muted">allocated by ↓ freed by →</span>
              </th>
              {matrix.names.map((name, i) => (
                <th key={matrix.ids[i]} scope="col" className="numeric" title={name}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {matrix.cells.map((row, i) => (
              <tr key={matrix.ids[i]}>
                <th scope="row">{matrix.names[i]}</th>
                {row.map((value, j) => (
                  <td
                    key={matrix.ids[j]}
                    className="numeric"
                    data-own={i === j || undefined}
                    title={`${formatExact(value, unit)} of ${matrix.names[i]}, freed by ${matrix.names[j]}`}
                    style={{
                      background:
                        value > 0
                          ? `color-mix(in oklab, var(--${i === j ? "live" : "warn-fill"}) ${8 + 40 * Math.sqrt(value / matrix.largest)}%, transparent)`
                          : undefined,
                    }}
                  >
                    {value > 0 ? formatValue(value, unit) : ""}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {matrix.leftOut > 0 && (
        <p className="muted">
          {plural(matrix.leftOut, "thread")} with fewer frees are not in the matrix; the table has them.
        </p>
      )}
    </section>
  );
}

function columnsFor(unit: "bytes" | "count"): Column<Thread>[] {
  const amount = (
    id: "allocated" | "freed" | "live" | "leaked" | "temporary",
    header: string,
    definition: string,
  ): Column<Thread> => ({
    id,
    header,
    definition,
    width: "90px",
    numeric: true,
    value: (thread) => thread[id][unit],
    cell: (thread) => (
      <span title={`${formatExact(thread[id].bytes, "bytes")}, ${formatExact(thread[id].count, "count")}`}>
        {formatValue(thread[id][unit], unit)}
      </span>
    ),
  });
  return [
    {
      id: "name",
      header: "Thread",
      definition: "Last known name",
      width: "minmax(130px, 420px)",
      value: (thread) => thread.name,
      cell: (thread) => <span className="mono">{thread.name || `thread ${thread.id}`}</span>,
    },
    {
      id: "id",
      header: "Id",
      definition: "Number in the recording, from 1",
      width: "52px",
      numeric: true,
      value: (thread) => thread.id,
      cell: (thread) => thread.id,
    },
    {
      id: "os",
      header: "Kernel id",
      definition: "The kernel's thread id",
      width: "72px",
      numeric: true,
      value: (thread) => thread.os_thread,
      cell: (thread) => thread.os_thread,
    },
    amount("allocated", "Allocated", "Allocated in the window"),
    amount("freed", "Freed", "Freed by this thread in the window"),
    amount("live", "Live", "Allocated by the thread and live at the end of the window"),
    amount("leaked", "Leaked", "Allocated in the window and never freed"),
    amount("temporary", "Temporary", "Allocated in the window and freed again at once"),
    {
      id: "start",
      header: "First event",
      definition: "When its first event was",
      width: "84px",
      numeric: true,
      value: (thread) => thread.started_ns,
      cell: (thread) => formatDuration(thread.started_ns),
    },
    {
      id: "end",
      header: "Ended",
      definition: "When it ended, if that was seen",
      width: "84px",
      numeric: true,
      value: (thread) => thread.ended_ns ?? Number.MAX_SAFE_INTEGER,
      cell: (thread) => (thread.ended_ns == null ? "" : formatDuration(thread.ended_ns)),
    },
  ];
}
