// The heap by address and time. A choice of cells filters every other view by its addresses and its moment.
import { useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, type PointerEvent, useEffect, useMemo, useRef, useState } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { HeapMap } from "../../api/types.ts";
import { formatBytes, formatCount, formatInstant, formatPercent } from "../../lib/format.ts";
import { layerColor } from "../../lib/layers.ts";
import { bareName } from "../../lib/names.ts";
import { moved, ordered, type Patch } from "../../lib/patch.ts";
import { Button } from "../../ui/controls.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { MatchCount, useSearch } from "../../ui/search.tsx";
import { Answer, Empty } from "../../ui/states.tsx";
import { token, useTheme } from "../../ui/theme.ts";
import { ViewBar } from "../../ui/view-bar.tsx";
import { addressesOf, COLORED, cellAt, gapsOf, hex, momentOf, paintOf, siteOf } from "./cells.ts";
import "./map.css";

export function MapView() {
  const { subject } = usePage();
  const request = useRequest();
  const query = useQuery(documentQuery(subject, "map", { ...request.window, ...request.filters }));
  return (
    <div className="map-view">
      <ViewBar>
        <span className="muted" data-testid="map-rows">
          {query.data
            ? `${formatCount(query.data.addresses.length)} ranges of ${formatBytes(query.data.row_bytes)}, higher addresses on top; addresses without blocks are left out`
            : "Addresses against time"}
        </span>
      </ViewBar>
      <Answer query={query} what="the heap map">
        {(map) =>
          map.addresses.length === 0 ? (
            <Empty title="No block">
              <p>No block that passes the filters is live at any of the moments of the window.</p>
            </Empty>
          ) : (
            <Loaded map={map} />
          )
        }
      </Answer>
    </div>
  );
}

function Loaded({ map }: { map: HeapMap }) {
  const { search, go } = usePage();
  const [patch, setPatch] = useState<Patch | null>(null);
  const [hover, setHover] = useState<Patch | null>(null);
  const dragging = useRef(false);
  const find = useSearch();
  const isFound = useMemo(
    () => (find.active ? map.sites.map((site) => find.hit(site.function, site.file, site.module)) : undefined),
    [map, find],
  );
  const rows = map.addresses.length;
  const columns = map.t_ns.length;
  const at = patch ?? { row: 0, rowTo: 0, column: columns - 1, columnTo: columns - 1 };
  const under = (event: PointerEvent<HTMLElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    return cellAt(map, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  };
  const apply = () => {
    if (!patch) return;
    go({ filters: { ...search.filters, address: addressesOf(map, patch) }, at: momentOf(map, patch), root: undefined });
    setPatch(null);
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
  const shown = patch ?? hover;
  return (
    <section className="map-body" aria-label="Heap map">
      {/* biome-ignore lint/a11y/useSemanticElements: a picture with cells to choose is no set of fields */}
      <div
        className="map-picture"
        role="group"
        aria-label={`Heap map, ${rows} ranges of addresses by ${columns} moments. ${patch ? describe(map, patch) : "Arrow keys choose a cell, with shift a patch, Enter filters."}`}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: keys choose cells, as in the map of lifetimes.
        tabIndex={0}
        onKeyDown={onKeyDown}
        onPointerDown={(event) => {
          const { row, column } = under(event);
          dragging.current = true;
          setPatch({ row, rowTo: row, column, columnTo: column });
        }}
        onPointerMove={(event) => {
          const { row, column } = under(event);
          if (dragging.current && patch) setPatch({ ...patch, rowTo: row, columnTo: column });
          else setHover({ row, rowTo: row, column, columnTo: column });
        }}
        onPointerUp={() => {
          dragging.current = false;
        }}
        onPointerLeave={() => {
          dragging.current = false;
          setHover(null);
        }}
      >
        <Picture map={map} isFound={isFound} />
        {shown && <Frame map={map} patch={ordered(shown)} chosen={patch !== null} />}
      </div>
      <div className="map-times" aria-hidden="true">
        {[0, 0.25, 0.5, 0.75, 1].map((part) => (
          <span key={part}>{formatInstant(map.t_ns[Math.round(part * (columns - 1))] ?? 0)}</span>
        ))}
      </div>
      <div className="map-bar" data-testid="map-bar">
        {shown ? (
          <span>{describe(map, shown)}</span>
        ) : (
          <span className="muted">
            Colour is the site with most bytes, strength how full the range is
            {map.resident.length > 0 ? "; grey is resident memory without a live block" : ""}. Click a cell or drag over
            several.
          </span>
        )}
        {patch && (
          <>
            <Button onClick={apply}>Filter every view by it</Button>
            <Button quiet onClick={() => setPatch(null)}>
              Drop
            </Button>
          </>
        )}
      </div>
      <MatchCount
        search={find}
        shown={isFound?.filter((found) => found).length ?? 0}
        of={map.sites.length}
        what="sites that have most of a cell"
      />
      <ol className="map-legend">
        {map.sites.slice(0, COLORED).map((site, i) => (
          <li key={site.id} data-match={isFound?.[i] || undefined} data-faint={isFound?.[i] === false || undefined}>
            <span className="map-swatch" style={{ background: `var(${layerColor(i)})` }} />
            <Button quiet onClick={() => go({ site: site.id }, { view: "sites" })}>
              <span title={site.function ?? undefined}>{bareName(site.function ?? site.id, 80)}</span>
            </Button>
            <span className="muted">
              {placeOf(site)}
              {site.caller &&
                ` by ${bareName(site.caller.function ?? site.caller.offset ?? "?", 60)} ${placeOf(site.caller) ?? ""}`}
            </span>
          </li>
        ))}
        {map.total_sites > COLORED && (
          <li className="muted">
            <span className="map-swatch" style={{ background: "var(--layer-rest)" }} />
            {formatCount(map.total_sites - COLORED)} other sites
          </li>
        )}
      </ol>
    </section>
  );
}

/** The file and line, or the module. */
const placeOf = ({ file, line, module }: Pick<HeapMap["sites"][number], "file" | "line" | "module">) =>
  file ? `${file.split("/").at(-1)}${line == null ? "" : `:${line}`}` : module;

/** The cells, a pixel each; the browser enlarges them without blurring. */
function Picture({ map, isFound }: { map: HeapMap; isFound: readonly boolean[] | undefined }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  const gaps = useMemo(() => gapsOf(map), [map]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: colours are those of the theme.
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const rows = map.addresses.length;
    context.clearRect(0, 0, map.t_ns.length, rows);
    const colors = new Map<string, string>();
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < map.t_ns.length; column += 1) {
        const paint = paintOf(map, row, column, isFound);
        if (!paint) continue;
        let color = colors.get(paint.color);
        if (color === undefined) {
          color = token(paint.color);
          colors.set(paint.color, color);
        }
        context.globalAlpha = paint.alpha;
        context.fillStyle = color;
        context.fillRect(column, rows - 1 - row, 1, 1);
      }
    }
  }, [map, theme, isFound]);
  return (
    <>
      <canvas ref={canvas} width={map.t_ns.length} height={map.addresses.length} />
      {gaps.map((row) => (
        <span key={row} className="map-gap" style={{ bottom: `${(row / map.addresses.length) * 100}%` }} />
      ))}
    </>
  );
}

function Frame({ map, patch, chosen }: { map: HeapMap; patch: Patch; chosen: boolean }) {
  const rows = map.addresses.length;
  const columns = map.t_ns.length;
  return (
    <span
      className="map-frame"
      data-chosen={chosen || undefined}
      style={{
        left: `${(patch.column / columns) * 100}%`,
        width: `${((patch.columnTo - patch.column + 1) / columns) * 100}%`,
        bottom: `${(patch.row / rows) * 100}%`,
        height: `${((patch.rowTo - patch.row + 1) / rows) * 100}%`,
      }}
    />
  );
}

function describe(map: HeapMap, patch: Patch): string {
  const { row, rowTo, column, columnTo } = ordered(patch);
  const when =
    column === columnTo
      ? `at ${formatInstant(map.t_ns[column] ?? 0)}`
      : `from ${formatInstant(map.t_ns[column] ?? 0)} to ${formatInstant(map.t_ns[columnTo] ?? 0)}`;
  if (row !== rowTo || column !== columnTo) return `${addressesOf(map, patch)} ${when}`;
  const occupied = map.occupied[row]?.[column] ?? 0;
  const resident = map.resident[row]?.[column];
  const site = siteOf(map, row, column);
  const parts = [
    `${hex(map.addresses[row] ?? 0)} ${when}`,
    `${formatBytes(occupied)} live (${formatPercent(occupied / map.row_bytes)})`,
    ...(resident === undefined ? [] : [`${formatBytes(resident)} resident`]),
    ...(site ? [`most by ${bareName(site.function ?? site.id)}`] : []),
  ];
  return parts.join(", ");
}
