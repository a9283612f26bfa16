// How long blocks live, against their size. A patch of the map filters every other view.
import { useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, useMemo, useRef, useState } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Lifetimes } from "../../api/types.ts";
import { formatBytes, formatCount, formatDuration, formatPercent, formatValue, plural } from "../../lib/format.ts";
import { isInside, moved, ordered, type Patch } from "../../lib/patch.ts";
import { withPattern } from "../../lib/pattern.ts";
import { Button, Segmented } from "../../ui/controls.tsx";
import { Histogram } from "../../ui/histogram.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { useSearch } from "../../ui/search.tsx";
import { Answer, Empty } from "../../ui/states.tsx";
import { useWidth } from "../../ui/use-size.ts";
import { ViewBar } from "../../ui/view-bar.tsx";
import { buildHeatMap, countsOf, filtersOf, type HeatMap, sumOf } from "./heat-map.ts";
import "./lifetimes.css";

export function LifetimesView() {
  const { subject, search, go, report } = usePage();
  const request = useRequest();
  const unit = search.unit ?? "bytes";
  const parameters = { ...request.window, ...request.filters };
  const find = useSearch();
  const lifetimes = useQuery(documentQuery(subject, "lifetimes", parameters));
  // What the search finds is the part of the map whose stacks have a match.
  const { focus } = request.filters;
  const found = useQuery({
    ...documentQuery(subject, "lifetimes", {
      ...parameters,
      focus: focus === undefined ? find.asked : withPattern(String(focus), find.asked ?? ""),
    }),
    enabled: find.active && !report,
  });
  const matched = find.active && !report ? found.data : undefined;
  const sizes = useQuery(documentQuery(subject, "sizes", parameters));
  return (
    <div className="lifetimes-view">
      <ViewBar>
        <Segmented
          label="Unit of lifetimes"
          value={unit}
          choices={[
            { value: "bytes", label: "Bytes" },
            { value: "count", label: "Blocks" },
          ]}
          onChange={(value) => go({ unit: value === "count" ? "count" : undefined })}
        />
        <span className="muted">
          Blocks allocated in the window. Blocks never freed count as live until the end of the recording.
        </span>
        {matched && lifetimes.data && <output data-testid="matches">{foundText(lifetimes.data, matched, unit)}</output>}
      </ViewBar>
      <Answer query={lifetimes} what="the lifetimes">
        {(document) =>
          document.map_count.length === 0 ? (
            <Empty title="No block">
              <p>No block allocated in this window passes the filters.</p>
            </Empty>
          ) : (
            <div className="lifetimes-columns">
              <HeatMapView document={document} unit={unit} matched={matched} />
              <div>
                <Histogram data={document.histogram} label="Lifetimes" formatClass={formatDuration} unit={unit} />
                {sizes.data && (
                  <>
                    <Histogram data={sizes.data.histogram} label="Sizes" formatClass={formatBytes} unit={unit} />
                    <h2>Commonest sizes</h2>
                    <table className="small-table">
                      <thead>
                        <tr>
                          <th className="numeric">Size</th>
                          <th className="numeric">Blocks</th>
                          <th className="numeric">Bytes</th>
                          <th>
                            <span className="visually-hidden">Filter</span>
                          </th>
                        </tr>
                      </thead>
                      <tbody>
                        {sizes.data.commonest.slice(0, 12).map(({ size, count }) => (
                          <tr key={size}>
                            <td className="numeric">{formatCount(size)} B</td>
                            <td className="numeric">{formatCount(count)}</td>
                            <td className="numeric">{formatBytes(size * count)}</td>
                            <td>
                              <Button
                                quiet
                                onClick={() =>
                                  go({ filters: { ...search.filters, min_size: String(size), max_size: String(size) } })
                                }
                              >
                                Only these
                              </Button>
                            </td>
                          </tr>
                        ))}
                      </tbody>
                    </table>
                  </>
                )}
              </div>
            </div>
          )
        }
      </Answer>
    </div>
  );
}

/** Pixels of a label below the map, and of what must be between two. */
const LABEL = 72;

interface HeatMapProps {
  document: Lifetimes;
  unit: "bytes" | "count";
  /** The same of what a search finds. */
  matched: Lifetimes | undefined;
}

function HeatMapView({ document, unit, matched }: HeatMapProps) {
  const host = useRef<HTMLDivElement>(null);
  const width = useWidth(host);
  const { search, go } = usePage();
  const map = useMemo(() => buildHeatMap(document, unit), [document, unit]);
  const countOf = useMemo(() => matched && countsOf(matched), [matched]);
  const [drawn, setDrawn] = useState<Patch | null>(null);
  const [dragging, setDragging] = useState(false);
  if (!map) {
    return (
      <Empty title="No block">
        <p>No block allocated in this window passes the filters.</p>
      </Empty>
    );
  }
  const rows = map.values.length;
  const columns = map.values[0]?.length ?? 0;
  // While it is drawn the address waits; another map may have fewer cells.
  const kept = search.patch && isInside(search.patch, rows, columns) ? search.patch : null;
  const patch = dragging ? drawn : kept;
  const setPatch = (next: Patch | null) => go({ patch: next ?? undefined }, { replace: true });
  const endDrag = () => {
    if (!dragging) return;
    setDragging(false);
    setPatch(drawn);
  };
  const at = patch ?? { row: 0, rowTo: 0, column: 0, columnTo: 0 };
  const apply = () => {
    if (!patch) return;
    const filters = { ...withoutSizeAndLifetime(search.filters), ...filtersOf(map, patch) };
    go({ filters, root: undefined, patch: undefined });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const next = moved(at, event, { rows, columns });
    if (next) setPatch(next);
    else if (event.key === "Enter") apply();
    else if (event.key === "Escape" && patch) setPatch(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  // As many labels of lifetimes as stand beside each other.
  const labels = Math.max(2, Math.min(7, Math.floor(width / LABEL)));
  const chosen = patch && ordered(patch);
  const sum = patch && sumOf(map, patch);
  return (
    <section className="heat" aria-labelledby="heat-title">
      <h2 id="heat-title">
        Size <span className="muted">↑</span> against lifetime <span className="muted">→</span>
      </h2>
      <div
        ref={host}
        className="heat-map"
        role="group"
        aria-label={`Heat map, ${rows} sizes by ${columns} lifetimes. ${patch ? describe(map, patch) : "Arrow keys choose a cell, with shift a patch, Enter filters."}`}
        tabIndex={0}
        style={{ gridTemplateColumns: `64px repeat(${columns}, minmax(0, 1fr))` }}
        onKeyDown={onKeyDown}
        onPointerUp={endDrag}
        onPointerLeave={endDrag}
      >
        {map.values
          .map((row, r) => ({ row, r }))
          .reverse()
          .map(({ row, r }) => (
            <div key={map.sizes[r]} className="heat-row">
              <span className="heat-label muted">
                {r % Math.ceil(rows / 16) === 0 ? formatBytes(map.sizes[r] ?? 0) : ""}
              </span>
              {row.map((value, c) => (
                <span
                  key={map.lifetimes[c]}
                  className="heat-cell"
                  data-on={
                    (chosen && r >= chosen.row && r <= chosen.rowTo && c >= chosen.column && c <= chosen.columnTo) ||
                    undefined
                  }
                  data-match={(countOf && countOf(map.sizes[r], map.lifetimes[c]) > 0) || undefined}
                  title={cellText(map, r, c) + foundIn(countOf?.(map.sizes[r], map.lifetimes[c]))}
                  style={
                    {
                      "--heat": heat(
                        value / map.largest,
                        countOf === undefined || countOf(map.sizes[r], map.lifetimes[c]) > 0,
                      ),
                    } as React.CSSProperties
                  }
                  onPointerDown={(event) => {
                    event.currentTarget.releasePointerCapture(event.pointerId);
                    setDragging(true);
                    setDrawn({ row: r, rowTo: r, column: c, columnTo: c });
                  }}
                  onPointerEnter={() => {
                    if (dragging && drawn) setDrawn({ ...drawn, rowTo: r, columnTo: c });
                  }}
                />
              ))}
            </div>
          ))}
        <div className="heat-row">
          <span className="heat-label" />
          {map.values[0]?.map((_, c) => (
            <span key={map.lifetimes[c]} className="heat-foot muted">
              {c % Math.ceil(columns / labels) === 0 ? formatDuration(map.lifetimes[c] ?? 0) : ""}
            </span>
          ))}
        </div>
      </div>
      <div className="heat-bar">
        {patch && sum ? (
          <>
            <span>
              {describe(map, patch)}: <b>{formatBytes(sum.bytes)}</b> in {plural(sum.count, "block")}
            </span>
            <Button onClick={apply}>Filter every view by it</Button>
            <Button quiet onClick={() => setPatch(null)}>
              Drop
            </Button>
          </>
        ) : (
          <span className="muted">
            Drag over cells to choose a patch. Stronger is more {unit === "bytes" ? "bytes" : "blocks"}; the strongest
            cell holds {formatValue(map.largest, unit)}.
          </span>
        )}
      </div>
    </section>
  );
}

function withoutSizeAndLifetime<T extends Record<string, unknown>>(filters: T | undefined): Partial<T> {
  const rest = { ...filters } as Partial<T>;
  for (const name of ["min_size", "max_size", "min_lifetime", "max_lifetime"] as (keyof T)[]) delete rest[name];
  return rest;
}

/** How strong a cell is; what a search does not find is faint. */
function heat(part: number, isFound: boolean): string {
  if (part <= 0) return "0%";
  return `${(12 + 88 * Math.sqrt(part)) * (isFound ? 1 : FAINT)}%`;
}

const FAINT = 0.25;

function foundIn(count: number | undefined): string {
  return count === undefined || count === 0 ? "" : `, of it ${plural(count, "block")} in stacks with a match`;
}

function foundText(all: Lifetimes, matched: Lifetimes, unit: "bytes" | "count"): string {
  const sum = (document: Lifetimes) => document.histogram[unit].reduce((a, b) => a + b, 0);
  return `${formatValue(sum(matched), unit)} (${formatPercent(sum(matched) / (sum(all) || 1))}) in stacks with a match`;
}

function cellText(map: HeatMap, row: number, column: number): string {
  return `${describe(map, { row, rowTo: row, column, columnTo: column })}: ${formatCount(map.counts[row]?.[column] ?? 0)} blocks, ${formatBytes(map.bytes[row]?.[column] ?? 0)}`;
}

function describe(map: HeatMap, patch: Patch): string {
  const { row, rowTo, column, columnTo } = ordered(patch);
  const size = map.sizes[rowTo + 1];
  const lifetime = map.lifetimes[columnTo + 1];
  return `${formatBytes(map.sizes[row] ?? 0)}${size === undefined ? " and more" : ` to ${formatBytes(size)}`}, living ${formatDuration(map.lifetimes[column] ?? 0)}${lifetime === undefined ? " and longer" : ` to ${formatDuration(lifetime)}`}`;
}
