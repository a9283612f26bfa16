// What was never freed, by allocating backtrace, with a verdict and its reason.
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { documentQuery, siteQuery } from "../../api/queries.ts";
import type { LeakSite, Leaks, Verdict, VerdictKind } from "../../api/types.ts";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatExact,
  formatInstant,
  formatPercent,
  plural,
  sentence,
} from "../../lib/format.ts";
import { isChosen } from "../../lib/identity.ts";
import { shortName } from "../../lib/names.ts";
import { readPattern } from "../../lib/pattern.ts";
import { allocatorName, allocatorPlace, callerName, frameName, stackText } from "../../lib/stack.ts";
import { Button, Select, Share } from "../../ui/controls.tsx";
import { type Column, DataTable, toTsv } from "../../ui/data-table.tsx";
import { allocatorMenu, useFunctionMenu } from "../../ui/function-menu.ts";
import { useCopy } from "../../ui/notice.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { Sparkline } from "../../ui/sparkline.tsx";
import { Stack } from "../../ui/stack.tsx";
import { Answer, Empty } from "../../ui/states.tsx";
import { Term } from "../../ui/term.tsx";
import { VERDICT_TEXT, VerdictBadge } from "../../ui/verdict.tsx";

const LIMIT = 2000;
type Shown = VerdictKind | "all";

export function LeaksView() {
  const { subject, running } = usePage();
  const request = useRequest();
  const query = useQuery(documentQuery(subject, "leaks", { ...request.window, ...request.filters, limit: LIMIT }));
  return (
    <Answer query={query} what="the leaks">
      {(leaks) =>
        leaks.sites.length === 0 ? (
          <Empty title={running ? "Nothing is live in this window" : "Nothing leaked in this window"}>
            <p>Every block that was allocated in it and passes the filters has been freed.</p>
            {leaks.suppressed.count > 0 && <p>{formatBytes(leaks.suppressed.bytes)} are suppressed.</p>}
          </Empty>
        ) : (
          <Loaded leaks={leaks} />
        )
      }
    </Answer>
  );
}

function Loaded({ leaks }: { leaks: Leaks }) {
  const { search, go, running } = usePage();
  const copy = useCopy();
  const functionMenu = useFunctionMenu();
  const [shown, setShown] = useState<Shown>("all");
  const pattern = useMemo(() => readPattern(search.q ?? ""), [search.q]);
  const sites = useMemo(
    () =>
      leaks.sites.filter(
        (site) =>
          (shown === "all" || site.verdict.kind === shown) &&
          (pattern.kind !== "valid" ||
            site.stack.some((frame) => pattern.test(frameName(frame)) || pattern.test(frame.module ?? ""))),
      ),
    [leaks.sites, shown, pattern],
  );
  const columns = useMemo(() => columnsFor(leaks), [leaks]);
  const selected = sites.find((site) => site.id === search.site) ?? sites[0];
  const sort = search.sort ?? "bytes";
  const atExit = leaks.freed_at_exit ?? [];
  return (
    <div className="split-view">
      <div className="table-view">
        <div className="view-bar">
          <span data-testid="leaked">
            <Term
              definition={
                running
                  ? "Requested bytes of blocks that are live now; the program may still free them."
                  : "Requested bytes of blocks that were still live when the recording ended, suppressed sites not included."
              }
            >
              {running ? "Live so far" : "Leaked"}
            </Term>{" "}
            <b data-exact={leaks.leaked.bytes} title={formatExact(leaks.leaked.bytes, "bytes")}>
              {formatBytes(leaks.leaked.bytes)}
            </b>{" "}
            <span className="muted">
              ({formatCount(leaks.leaked.bytes)} bytes) in {plural(leaks.leaked.count, "block")},{" "}
              {plural(leaks.total_sites, "site")}
            </span>
          </span>
          {leaks.suppressed.count > 0 && (
            <span className="muted">
              <Term
                definition={`Leaks that a suppression names; they are not in the sum.${(leaks.suppressions ?? [])
                  .slice(0, 6)
                  .map(
                    (one) =>
                      `\n${one.pattern} (${one.origin}): ${formatBytes(one.bytes)}, ${plural(one.sites, "site")}`,
                  )
                  .join("")}`}
              >
                suppressed
              </Term>{" "}
              {formatBytes(leaks.suppressed.bytes)}
            </span>
          )}
          {atExit.length > 0 && (
            <span className="muted">
              <Term
                definition={`Not leaked, and in no sum: they kept growing, and were freed when the program ended. Largest: ${atExit
                  .slice(0, 5)
                  .map((site) => `${shortName(allocatorName(site.stack, site.id), 60)} ${formatBytes(site.bytes)}`)
                  .join(", ")}.`}
              >
                freed only at exit
              </Term>{" "}
              {plural(atExit.length, "growing site")}
            </span>
          )}
          {leaks.total_sites > leaks.sites.length && (
            <span className="warn">
              the largest {formatCount(leaks.sites.length)} sites of {formatCount(leaks.total_sites)} are listed; filter
              to see others
            </span>
          )}
          <span className="bar-end">
            <Select
              label="Verdict"
              value={shown}
              choices={[
                { value: "all", label: "all" },
                ...(["growing", "bounded", "one_time", "unclear"] as const).map((kind) => ({
                  value: kind,
                  label: `${VERDICT_TEXT[kind].label} (${leaks.sites.filter((site) => site.verdict.kind === kind).length})`,
                })),
              ]}
              onChange={(kind) => setShown(kind as Shown)}
            />
            <Button quiet onClick={() => copy(toTsv(columns, sites), plural(sites.length, "row"))}>
              Copy table
            </Button>
          </span>
        </div>
        {sites.length === 0 ? (
          <Empty title="No leak matches">
            <p>Change the search or the choice of verdict.</p>
          </Empty>
        ) : (
          <DataTable
            label="Leaking sites"
            rows={sites}
            columns={columns}
            rowKey={(site) => site.id}
            sorting={{
              by: "here",
              column: sort.replace(/^-/, ""),
              reversed: sort.startsWith("-"),
              onSort: (column, reversed) => go({ sort: `${reversed ? "-" : ""}${column}` }, { replace: true }),
            }}
            isSelected={(site) => site.id === selected?.id}
            functions={(site) => site.stack.map(frameName)}
            isDimmed={(site) =>
              search.selected !== undefined &&
              !site.stack.some((frame) => isChosen({ ...frame, name: frameName(frame) }, search.selected))
            }
            onSelect={(site) => go({ site: site.id }, { replace: true })}
            onOpen={(site) => go({ site: site.id }, { view: "sites" })}
            menu={(site) => [
              { label: "Open the site", hint: "Enter", run: () => go({ site: site.id }, { view: "sites" }) },
              { label: "Copy stack", run: () => copy(stackText(site.stack), "the stack") },
              ...allocatorMenu(site.stack, functionMenu),
            ]}
          />
        )}
      </div>
      {selected && (
        <aside className="side" aria-label="The selected leak">
          <h2 className="mono">{shortName(allocatorName(selected.stack, selected.id), 160)}</h2>
          <p>
            <VerdictBadge verdict={selected.verdict} /> {sentence(selected.verdict.why)}
          </p>
          <dl className="facts-list">
            <div>
              <dt>Leaked</dt>
              <dd>{formatExact(selected.bytes, "bytes")}</dd>
            </div>
            <div>
              <dt>Blocks</dt>
              <dd>{formatCount(selected.count)}</dd>
            </div>
            <div>
              <dt>First kept</dt>
              <dd>{formatInstant(selected.first_ns)}</dd>
            </div>
            <div>
              <dt>Last kept</dt>
              <dd>{formatInstant(selected.last_ns)}</dd>
            </div>
            {selected.verdict.bytes_per_second > 0 && (
              <div>
                <dt>Grows by</dt>
                <dd>{growthText(selected.verdict)}</dd>
              </div>
            )}
            {selected.verdict.forecast && (
              <div>
                <dt>
                  <Term definition="Extrapolation of the current rate.">Forecast</Term>
                </dt>
                <dd>
                  {formatBytes(selected.verdict.forecast.bytes)} {formatDuration(selected.verdict.forecast.after_ns)}{" "}
                  after the end
                </dd>
              </div>
            )}
          </dl>
          <GrowthCurve site={selected.id} />
          <p>
            <Button onClick={() => go({ site: selected.id }, { view: "sites" })}>Open the site</Button>
          </p>
          <Stack stack={selected.stack} label="Allocated by, innermost first" />
        </aside>
      )}
    </div>
  );
}

/** The rate, with the interval that holds it with 95 % confidence where there is one. */
function growthText(verdict: Verdict): string {
  const rate = `${formatBytes(verdict.bytes_per_second)}/s`;
  const { bytes_per_second_low: low, bytes_per_second_high: high } = verdict;
  return low == null || high == null ? rate : `${rate} (${formatBytes(low)} to ${formatBytes(high)})`;
}

/** Live bytes of the site over the window. */
function GrowthCurve({ site }: { site: string }) {
  const { subject } = usePage();
  const request = useRequest();
  const query = useQuery(siteQuery(subject, site, { ...request.window, ...request.filters, points: 400 }));
  const series = query.data?.timeline.series.find((one) => one.name === "live_bytes");
  if (!series) return null;
  return (
    <figure className="growth">
      <figcaption className="muted">Live bytes of this site</figcaption>
      <Sparkline values={series.last.map((value) => value ?? 0)} width={330} height={64} />
    </figure>
  );
}

function columnsFor(leaks: Leaks): Column<LeakSite>[] {
  const total = leaks.leaked.bytes;
  return [
    {
      id: "bytes",
      header: "Bytes",
      definition: "Leaked bytes of the site",
      width: "70px",
      numeric: true,
      value: (site) => site.bytes,
      cell: (site) => <span title={formatExact(site.bytes, "bytes")}>{formatBytes(site.bytes)}</span>,
    },
    {
      id: "share",
      header: "%",
      definition: "Part of all leaked bytes",
      width: "68px",
      numeric: true,
      value: (site) => site.bytes / total,
      cell: (site) => <Share part={site.bytes / total}>{formatPercent(site.bytes / total)}</Share>,
    },
    {
      id: "count",
      header: "Blocks",
      definition: "Leaked blocks of the site",
      width: "52px",
      numeric: true,
      value: (site) => site.count,
      cell: (site) => formatCount(site.count),
    },
    {
      id: "verdict",
      header: "Verdict",
      definition: "What the history of the site says; hover for the meaning",
      width: "76px",
      value: (site) => site.verdict.kind,
      cell: (site) => (
        <span className="verdict" data-kind={site.verdict.kind}>
          {VERDICT_TEXT[site.verdict.kind].label}
        </span>
      ),
    },
    {
      id: "function",
      header: "Allocated by",
      definition: "Innermost function that is of no standard library",
      width: "minmax(130px, 2fr)",
      value: (site) => allocatorName(site.stack, site.id),
      cell: (site) => <span className="mono">{shortName(allocatorName(site.stack, site.id), 200)}</span>,
    },
    {
      id: "caller",
      header: "Called from",
      definition: "The next function of the stack",
      width: "minmax(90px, 1.4fr)",
      value: (site) => callerName(site.stack),
      cell: (site) => <span className="mono muted">{shortName(callerName(site.stack), 160)}</span>,
    },
    {
      id: "place",
      header: "Source",
      definition: "Source line, else the module",
      width: "minmax(96px, 1.1fr)",
      value: (site) => allocatorPlace(site.stack) ?? "",
      cell: (site) => <span className="muted">{allocatorPlace(site.stack)}</span>,
    },
    {
      id: "last",
      header: "Last kept",
      definition: "Allocation of the last block that leaked",
      width: "70px",
      numeric: true,
      value: (site) => site.last_ns,
      cell: (site) => formatDuration(site.last_ns),
    },
  ];
}
