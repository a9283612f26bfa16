// Why resident memory is what it is: the ledger at one moment, and over time.
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Memory, MemoryHistory } from "../../api/types.ts";
import { formatBytes, formatCount, formatExact, formatInstant, formatPercent, plural } from "../../lib/format.ts";
import { besideText, ledgerText } from "../../lib/ledger.ts";
import { memoryMoment } from "../../lib/moment.ts";
import { frameName } from "../../lib/stack.ts";
import { Button } from "../../ui/controls.tsx";
import { LedgerBar, LedgerTable } from "../../ui/ledger.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { MatchCount, useSearch } from "../../ui/search.tsx";
import { StackedChart } from "../../ui/stacked-chart.tsx";
import { Answer, Empty } from "../../ui/states.tsx";
import { Term } from "../../ui/term.tsx";
import { ReplayPanel } from "./replay-panel.tsx";
import "./memory.css";

/** Looks that are asked for. */
const LOOKS = 40;
/** Backtraces that mapped memory. */
const MAPPERS = 12;
/** The same while something is searched. */
const MAPPERS_SEARCHED = 1000;

export function MemoryView() {
  const { search, subject, report, info, running, go } = usePage();
  const request = useRequest();
  const at = memoryMoment(search, info, running);
  const find = useSearch();
  const memory = useQuery(
    documentQuery(subject, "memory", report ? {} : { at, limit: find.active ? MAPPERS_SEARCHED : MAPPERS }),
  );
  const history = useQuery({
    ...documentQuery(subject, "memory_history", report ? {} : { ...request.window, points: LOOKS }),
    // The moment comes first: it is what is read.
    enabled: memory.data !== undefined,
  });
  const open = (moment: number) => go({ at: moment, window: undefined, metric: undefined });
  return (
    <Answer query={memory} what="the look at the pages">
      {(data) =>
        data.rows ? (
          <div className="memory-view">
            <Moment memory={data} />
            <section aria-labelledby="memory-history">
              <h2 id="memory-history">Resident memory over time</h2>
              {history.data ? (
                <History
                  knowsAllBlocks={memory.data?.knows_all_blocks}
                  history={history.data}
                  open={report ? undefined : open}
                />
              ) : (
                <p className="muted">{history.error ? history.error.message : "Reading the looks…"}</p>
              )}
            </section>
            <ReplayPanel />
            <Mappers memory={data} />
          </div>
        ) : (
          <Empty title="Resident memory is not known here">
            <p>No sample of it was taken up to {formatInstant(data.at_ns)}. Choose a later instant.</p>
          </Empty>
        )
      }
    </Answer>
  );
}

function Moment({ memory }: { memory: Memory }) {
  const { go, report, info } = usePage();
  const [lit, setLit] = useState<string | undefined>();
  const find = useSearch();
  const beside = (memory.beside ?? []).filter((row) => row.bytes > 0);
  const trim = memory.returnable_by_trim_bytes;
  return (
    <section aria-labelledby="memory-now" className="memory-now">
      <div>
        <h2 id="memory-now">
          {formatBytes(memory.rss_bytes ?? 0)} resident at {formatInstant(memory.look_ns ?? memory.at_ns)}
        </h2>
        <p>{memory.why}</p>
        <LedgerBar ledger={memory} lit={lit} light={setLit} />
        <LedgerTable ledger={memory} lit={lit} light={setLit} search={find} />
      </div>
      <div>
        <h3>Beside it</h3>
        <dl className="facts-list">
          {trim != null && (
            <div data-fact="trim">
              <dt>
                <Term definition="What malloc_trim(0) would give back to the system at this moment: whole free pages inside the heaps.">
                  malloc_trim(0) gives back
                </Term>
              </dt>
              <dd title={formatExact(trim, "bytes")}>{formatBytes(trim)}</dd>
            </div>
          )}
          {beside.map((row) => (
            <div key={row.key}>
              <dt>{besideText(row.key)}</dt>
              <dd title={formatExact(row.bytes, "bytes")}>{formatBytes(row.bytes)}</dd>
            </div>
          ))}
          <div>
            <dt>Pages with live blocks</dt>
            <dd>
              {formatCount(memory.pages.count)}, {formatPercent(memory.pages.used_bytes / (memory.pages.bytes || 1))}{" "}
              full
              {memory.look_ns != null && memory.look_ns !== memory.at_ns && `, at ${formatInstant(memory.at_ns)}`}
            </dd>
          </div>
          <div>
            <dt>Allocator</dt>
            <dd>{memory.allocator}</dd>
          </div>
          <div>
            <dt>Look</dt>
            <dd>
              {memory.look_ns == null
                ? "none: the rows are estimates"
                : memory.look_ns === memory.at_ns
                  ? "at this instant"
                  : `the most like ${formatInstant(memory.at_ns)}, when ${formatBytes(memory.live.bytes)} were live`}
            </dd>
          </div>
        </dl>
        <p className="memory-links">
          <Button onClick={() => go({}, { view: "pins" })}>Whose blocks pin pages</Button>
          {!report && info?.peak_rss && (
            <Button onClick={() => go({ at: info.peak_rss?.at_ns, window: undefined, metric: undefined })}>
              Highest moment
            </Button>
          )}
          {!report && (
            <Button onClick={() => go({ at: info?.process.duration_ns, window: undefined, metric: undefined })}>
              End
            </Button>
          )}
        </p>
      </div>
    </section>
  );
}

interface HistoryProps {
  history: MemoryHistory;
  /** Whether all blocks are known at the instant that is shown. */
  knowsAllBlocks: boolean | undefined;
  open: ((t: number) => void) | undefined;
}

function History({ history, knowsAllBlocks, open }: HistoryProps) {
  const [withRecorder, setWithRecorder] = useState(false);
  const layers = useMemo(
    () =>
      history.rows
        .filter((row) => withRecorder || row.key !== "recorder")
        .map((row) => {
          const { label, definition, color } = ledgerText(row.key, knowsAllBlocks);
          return { id: row.key, label, title: definition, color, values: row.bytes };
        }),
    [history, knowsAllBlocks, withRecorder],
  );
  if (history.t_ns.length === 0) return <p className="muted">The recorder did not look at the pages in this window.</p>;
  const first = history.t_ns[0] ?? 0;
  const last = history.t_ns.at(-1) ?? 0;
  return (
    <>
      <div className="view-bar">
        <span className="muted">
          {history.t_ns.length < history.total_looks
            ? `${history.t_ns.length} of ${plural(history.total_looks, "look")}`
            : plural(history.total_looks, "look")}
          , each the sum of its rows
        </span>
        <Button quiet on={withRecorder} onClick={() => setWithRecorder(!withRecorder)}>
          With the recorder
        </Button>
      </div>
      <StackedChart
        t={history.t_ns}
        layers={layers}
        shown={{ from: first, to: Math.max(first + 1, last) }}
        height={260}
        label={`Rows of resident memory at ${plural(history.t_ns.length, "look")}; the table has the values`}
        {...(open ? { onInstant: open } : {})}
      />
    </>
  );
}

/** Beside malloc, programs map memory themselves: address space, not what is resident. */
function Mappers({ memory }: { memory: Memory }) {
  const find = useSearch();
  const all = memory.mappers.filter((mapper) => mapper.stack.length > 0);
  const rows = all.filter(({ stack }) => find.hit(...stack.flatMap((frame) => [frameName(frame), frame.module])));
  if (all.length === 0) return null;
  return (
    <section aria-labelledby="mapped">
      <h2 id="mapped">
        Address space by who mapped it{" "}
        <span className="muted">
          {formatBytes(memory.mapped_bytes)}, at most {formatBytes(memory.mapped_peak_bytes)} up to here
        </span>
      </h2>
      <MatchCount search={find} shown={rows.length} of={all.length} what="stacks that map" />
      <table className="small-table">
        <thead>
          <tr>
            <th className="numeric">Mapped</th>
            <th className="numeric">Pieces</th>
            <th>By</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((mapper) => {
            const own = mapper.stack.find((frame) => !frame.library) ?? mapper.stack[0];
            return (
              <tr key={mapper.stack.map((frame) => frame.address).join(" ")}>
                <td className="numeric" title={formatExact(mapper.mapped_bytes, "bytes")}>
                  {formatBytes(mapper.mapped_bytes)}
                </td>
                <td className="numeric">{formatCount(mapper.mappings)}</td>
                <td>
                  <span className="mono">{own ? frameName(own) : "unknown"}</span>{" "}
                  <span className="muted">{own?.module}</span>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}
