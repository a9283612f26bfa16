// What changed between two instants or two ranges of this recording, or between this recording and another.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Parameters } from "../../api/client.ts";
import type { Diff, DiffRow } from "../../api/types.ts";
import {
  formatBytes,
  formatCount,
  formatExact,
  formatInstant,
  formatSigned,
  formatValue,
  plural,
} from "../../lib/format.ts";
import { metricOfTwo } from "../../lib/moment.ts";
import { bareName, rowName, shortName } from "../../lib/names.ts";
import { readPattern } from "../../lib/pattern.ts";
import { plainTypes } from "../../lib/plain-types.ts";
import { recordingText } from "../../lib/recording.ts";
import { CHANGE_KINDS, effectiveWindow } from "../../lib/search-params.ts";
import { sortedRows } from "../../lib/sorting.ts";
import { allocatedBy, allocatorName, allocatorPlace, callerName, frameName, stackText } from "../../lib/stack.ts";
import type { Window } from "../../lib/time.ts";
import { Button, Segmented, Select } from "../../ui/controls.tsx";
import { type Column, DataTable, downloadCsv, toTsv } from "../../ui/data-table.tsx";
import { allocatorMenu, useFunctionMenu } from "../../ui/function-menu.ts";
import { useCopy } from "../../ui/notice.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { useSorting } from "../../ui/sorting.ts";
import { Stack } from "../../ui/stack.tsx";
import { Answer, Empty } from "../../ui/states.tsx";
import { Term } from "../../ui/term.tsx";
import { type ChangeRow, changeQuery, changeRows, changeText, isOfKind, KIND_TEXT } from "./change.ts";
import { DiffGraph } from "./diff-graph.tsx";
import { ScaledNote } from "./scaled-note.tsx";
import "./compare.css";

const LIMIT = 2000;
/** Pixels of the bar beside a change: growth to the right of its middle, shrinking to the left. */
const CHANGE_BAR = 44;

/** What two recordings can be compared by. */
const COMPARED = [
  { value: "peak", label: "Peak", title: "What was live at the peak of each" },
  { value: "live", label: "Live", title: "What is live at the chosen instant, or at the end" },
  { value: "leaked", label: "Leaked", title: "What was never freed" },
  { value: "allocated", label: "Allocated", title: "Everything that was allocated" },
  { value: "temporary", label: "Temporary", title: "What was freed again at once" },
] as const;

export function CompareView() {
  const page = usePage();
  const { search, subject, go, endNs, recordings, recording } = page;
  const request = useRequest();
  const unit = search.unit ?? "bytes";
  const window = effectiveWindow(search);
  // Against nothing at all every row is new: a third of the run is past what a program sets up.
  const a = search.a ?? window?.from ?? Math.floor(endNs / 3);
  const b = search.b ?? window?.to ?? endNs;
  const [from, to] = a <= b ? [a, b] : [b, a];
  const others = recordings.filter(
    (known) => known.id !== recording.id && known.state !== "failed" && known.state !== "cancelled",
  );
  const other = others.find((known) => known.id === search.other);
  const ranges = other ? undefined : search.ranges;
  const usualOfTwo = metricOfTwo({ at: search.at }, page.running || page.paused);
  const usual = ranges ? "allocated" : other ? usualOfTwo : "live";
  const metric = COMPARED.find((known) => known.value === search.metric)?.value ?? usual;
  const at = metric === "live" ? search.at : undefined;
  const measured = metric === "live" ? undefined : metric;
  const normalize = search.normalize;
  const sides: Parameters = other
    ? { other: other.id, at, unit, metric: measured, normalize }
    : ranges
      ? { before: rangeText(ranges[0]), after: rangeText(ranges[1]), unit, metric: measured, normalize }
      : { from, to, unit, normalize };
  const query = useQuery({
    ...changeQuery(subject, { ...sides, ...request.filters, limit: LIMIT }),
    enabled: !search.graph,
  });
  const names = ranges
    ? { before: `A, ${formatRange(ranges[0])}`, after: `B, ${formatRange(ranges[1])}` }
    : other
      ? undefined
      : { before: `A, ${formatInstant(from)}`, after: `B, ${formatInstant(to)}` };
  const halves = (): [Window, Window] => {
    const middle = Math.floor(endNs / 2);
    return [
      { from: 0, to: middle },
      { from: middle, to: endNs },
    ];
  };
  return (
    <div className="compare-view">
      <div className="view-bar">
        <Select
          label="Compare"
          value={other?.id ?? (ranges ? "ranges" : "instants")}
          choices={[
            { value: "instants", label: "two instants of this recording" },
            { value: "ranges", label: "two ranges of this recording" },
            ...others.map((known) => ({ value: known.id, label: `with ${recordingText(known)}` })),
          ]}
          onChange={(value) =>
            go({
              other: value === "instants" || value === "ranges" ? undefined : value,
              ranges: value === "ranges" ? halves() : undefined,
              root: undefined,
              metric: value === "ranges" ? undefined : search.metric,
            })
          }
        />
        {(other || ranges) && (
          <Segmented
            label="What is compared"
            value={metric}
            choices={COMPARED}
            onChange={(value) => go({ metric: value === usual ? undefined : value, root: undefined })}
          />
        )}
        {ranges && (
          <span>
            <b className="ab">A</b> {formatRange(ranges[0])}{" "}
            <Button
              quiet
              disabled={!window}
              title="Make the timeline's window range A"
              onClick={() => window && go({ ranges: [window, ranges[1]], root: undefined })}
            >
              Set A
            </Button>{" "}
            <b className="ab">B</b> {formatRange(ranges[1])}{" "}
            <Button
              quiet
              disabled={!window}
              title="Make the timeline's window range B"
              onClick={() => window && go({ ranges: [ranges[0], window], root: undefined })}
            >
              Set B
            </Button>
            {!window && <span className="muted"> brush the timeline to set others</span>}
          </span>
        )}
        {!other && !ranges && (
          <span>
            <b className="ab">A</b> {formatInstant(from)} <b className="ab">B</b> {formatInstant(to)}{" "}
            <span className="muted">
              {search.a === undefined ? "A/B on the timeline sets others" : "drag A and B on the timeline"}
            </span>
          </span>
        )}
        <span className="spring" />
        <Button
          on={normalize === true}
          title="Scale the first side so that both have the same total: what is left is a change of shares"
          onClick={() => go({ normalize: normalize ? undefined : true })}
        >
          Normalize
        </Button>
        <Segmented
          label="Unit of changes"
          value={unit}
          choices={[
            { value: "bytes", label: "Bytes" },
            { value: "count", label: "Blocks" },
          ]}
          onChange={(value) => go({ unit: value === "count" ? "count" : undefined })}
        />
        <Segmented
          label="Shown as"
          value={search.graph ? "graph" : "table"}
          choices={[
            { value: "table", label: "Table", title: "Backtraces, the largest change first" },
            { value: "graph", label: "Flame graph", title: "Both sides in one tree: red grew, blue shrank" },
          ]}
          onChange={(value) => go({ graph: value === "graph" ? true : undefined, root: undefined })}
        />
      </div>
      {search.graph ? (
        <DiffGraph sides={sides} filters={request.filters} before={names?.before} after={names?.after} />
      ) : (
        <Answer query={query} what="the comparison">
          {(diff) => <Loaded diff={names ? { ...diff, ...names } : diff} unit={unit} />}
        </Answer>
      )}
    </div>
  );
}

function Loaded({ diff, unit }: { diff: Diff; unit: "bytes" | "count" }) {
  const { search, go } = usePage();
  const copy = useCopy();
  const functionMenu = useFunctionMenu();
  const all = useMemo(() => changeRows(diff), [diff]);
  const pattern = useMemo(() => readPattern(search.q ?? ""), [search.q]);
  const rows = useMemo(
    () =>
      all.filter(
        (row) =>
          isOfKind(search.kind, row.before[unit], row.after[unit]) &&
          (pattern.kind !== "valid" || row.stack.some((frame) => pattern.test(frameName(frame)))),
      ),
    [all, search.kind, unit, pattern],
  );
  const largest = useMemo(
    () => rows.reduce((most, row) => Math.max(most, Math.abs(change(row, unit))), 0),
    [rows, unit],
  );
  const columns = useMemo(
    () =>
      columnsFor(
        unit,
        largest,
        rows.some((row) => row.survived),
      ),
    [unit, largest, rows],
  );
  const selected = rows.find((row) => row.key === search.row) ?? rows[0];
  const sorting = useSorting("change");
  const inOrder = () => sortedRows(rows, columns, sorting.keys);
  const delta = diff.total_after[unit] - diff.total_before[unit];
  if (all.length === 0) {
    return (
      <Empty title="Nothing changed">
        <p>
          {diff.before} and {diff.after} hold the same blocks, as far as the filters let them through.
        </p>
      </Empty>
    );
  }
  return (
    <div className="split-view">
      <div className="table-view">
        <div className="view-bar">
          <span>
            <span className="muted">{diff.before}</span> {formatValue(diff.total_before[unit], unit)}
          </span>
          <span>
            <span className="muted">{diff.after}</span> {formatValue(diff.total_after[unit], unit)}
          </span>
          <b className={delta > 0 ? "grew" : delta < 0 ? "shrank" : "muted"}>{formatSigned(delta, unit)}</b>
          <ScaledNote factor={diff.scaled_by} />
          {diff.total_rows > diff.rows.length && (
            <span className="warn">
              the {formatCount(diff.rows.length)} largest changes of {formatCount(diff.total_rows)}
            </span>
          )}
          <span className="bar-end">
            <Segmented
              label="Only"
              value={search.kind ?? "all"}
              choices={[
                { value: "all", label: "All", title: "Every backtrace" },
                ...CHANGE_KINDS.map((kind) => ({ value: kind, ...KIND_TEXT[kind] })),
              ]}
              onChange={(value) => go({ kind: value === "all" ? undefined : value }, { replace: true })}
            />
            <Button quiet onClick={() => copy(toTsv(columns, inOrder()), plural(rows.length, "row"))}>
              Copy table
            </Button>
            <Button quiet onClick={() => downloadCsv(columns, inOrder(), "changes.csv")}>
              CSV
            </Button>
          </span>
        </div>
        <DataTable
          label="Changes by backtrace"
          rows={rows}
          columns={columns}
          rowKey={(row) => row.key}
          total={diff.total_rows}
          sorting={sorting}
          isSelected={(row) => row.key === selected?.key}
          functions={(row) => row.stack.map(frameName)}
          onSelect={(row) => go({ row: row.key }, { replace: true })}
          menu={(row) => [
            { label: "Copy stack", run: () => copy(stackText(row.stack), "the stack") },
            ...allocatorMenu(row.stack, functionMenu),
          ]}
        />
      </div>
      {selected && (
        <aside className="side" aria-label="The selected change">
          <h2 className="mono">{shortName(plainTypes(allocatorName(selected.stack, "unknown")), 160)}</h2>
          <dl className="facts-list facts-wide">
            <div>
              <dt>{diff.before}</dt>
              <dd>
                {formatExact(selected.before.bytes, "bytes")}, {formatExact(selected.before.count, "count")}
              </dd>
            </div>
            <div>
              <dt>{diff.after}</dt>
              <dd>
                {formatExact(selected.after.bytes, "bytes")}, {formatExact(selected.after.count, "count")}
              </dd>
            </div>
            {selected.survived && (
              <div>
                <dt>
                  <Term definition="Blocks that are live on both sides.">Survived</Term>
                </dt>
                <dd>
                  {formatBytes(selected.survived.bytes)}, {formatExact(selected.survived.count, "count")}
                </dd>
              </div>
            )}
          </dl>
          <Stack stack={selected.stack} label="Allocated by, innermost first" />
        </aside>
      )}
    </div>
  );
}

/** As the server reads it: a label that contains `..` is in double quotes. */
function rangeText({ from, to }: Window): string {
  const end = (text: string) => (text.includes("..") ? `"${text}"` : text);
  return `${end(`${from}`)}..${end(`${to}`)}`;
}

function formatRange({ from, to }: Window): string {
  return `${formatInstant(from)} – ${formatInstant(to)}`;
}

function change(row: DiffRow, unit: "bytes" | "count"): number {
  return row.after[unit] - row.before[unit];
}

function columnsFor(unit: "bytes" | "count", largest: number, withSurvived: boolean): Column<ChangeRow>[] {
  const amount = (
    id: string,
    header: string,
    definition: string,
    of: (row: ChangeRow) => number,
  ): Column<ChangeRow> => ({
    id,
    header,
    definition,
    width: "66px",
    numeric: true,
    value: of,
    cell: (row) => (
      <span className={of(row) === 0 ? "muted" : undefined} title={formatExact(of(row), unit)}>
        {formatValue(of(row), unit)}
      </span>
    ),
  });
  return [
    {
      id: "change",
      header: "Change",
      definition: "After minus before; red grew, blue shrank. The largest changes in either direction come first",
      width: "116px",
      numeric: true,
      value: (row) => change(row, unit),
      order: (row) => Math.abs(change(row, unit)),
      cell: (row) => {
        const value = change(row, unit);
        return (
          <span
            className="change"
            data-kind={value > 0 ? "grew" : value < 0 ? "shrank" : undefined}
            title={formatExact(value, unit)}
          >
            <i style={{ width: largest > 0 ? (CHANGE_BAR / 2) * Math.sqrt(Math.abs(value) / largest) : 0 }} />
            <span>{formatSigned(value, unit)}</span>
          </span>
        );
      },
    },
    {
      id: "part",
      header: "Change %",
      definition: "The change as a part of what was there before",
      width: "76px",
      numeric: true,
      value: (row) => (row.before[unit] === 0 ? Number.MAX_VALUE : change(row, unit) / row.before[unit]),
      cell: (row) => changeText(row.before[unit], row.after[unit]),
    },
    amount("before", "Before", "The first side", (row) => row.before[unit]),
    amount("after", "After", "The second side", (row) => row.after[unit]),
    ...(withSurvived
      ? [
          amount("survived", "Survived", "Blocks that are live on both sides", (row) => row.survived?.[unit] ?? 0),
          amount("allocated", "New", "Live on the second side only", (row) => row.allocated?.[unit] ?? 0),
          amount("dead", "Dead", "Live on the first side only", (row) => row.dead?.[unit] ?? 0),
        ]
      : []),
    {
      id: "function",
      isSubject: true,
      header: "Allocated by",
      definition: "Innermost function that is of no standard library, and who called it",
      width: "minmax(200px, 1fr)",
      value: (row) => allocatorName(row.stack, ""),
      cell: (row) => (
        <span title={allocatorPlace(row.stack)}>
          <span className="mono">
            {rowName(allocatorName(row.stack, "unknown"), allocatedBy(row.stack).by?.file, 160)}
          </span>
          {callerName(row.stack) && <span className="mono muted"> ← {bareName(callerName(row.stack))}</span>}
        </span>
      ),
    },
  ];
}
