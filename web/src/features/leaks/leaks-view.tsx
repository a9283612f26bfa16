// What was never freed, by allocating backtrace, with a verdict and its reason.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { documentQuery, siteQuery } from "../../api/queries.ts";
import type { LeakSite, Leaks, Verdict } from "../../api/types.ts";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatExact,
  formatInstant,
  plural,
  sentence,
} from "../../lib/format.ts";
import { identityOf, isChosen, patternOf } from "../../lib/identity.ts";
import { bareName, shortName } from "../../lib/names.ts";
import { readPattern, withPattern } from "../../lib/pattern.ts";
import { plainTypes } from "../../lib/plain-types.ts";
import { VERDICTS, type VerdictName } from "../../lib/search-params.ts";
import { sortedRows } from "../../lib/sorting.ts";
import { leaksStatement } from "../../lib/sql-statements.ts";
import { allocatedBy, allocatorName, allocatorPlace, callerName, frameName, stackText } from "../../lib/stack.ts";
import { bytesColumn, countColumn, functionColumn, placeColumn, shareColumn } from "../../ui/columns.tsx";
import { Button, Segmented, Select } from "../../ui/controls.tsx";
import { CopySql } from "../../ui/copy-sql.tsx";
import { type Column, DataTable, downloadCsv, toTsv } from "../../ui/data-table.tsx";
import { allocatorMenu, useFunctionMenu } from "../../ui/function-menu.ts";
import { useCopy } from "../../ui/notice.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { useSorting } from "../../ui/sorting.ts";
import { Sparkline } from "../../ui/sparkline.tsx";
import { Stack } from "../../ui/stack.tsx";
import { Answer, Empty } from "../../ui/states.tsx";
import { Term } from "../../ui/term.tsx";
import { VERDICT_TEXT, VerdictBadge, VerdictWord, verdictName } from "../../ui/verdict.tsx";
import { ViewBar } from "../../ui/view-bar.tsx";
import { ChosenFunction, functionColumnsFor, named } from "./leak-functions.tsx";
import { NeverUnmapped } from "./never-unmapped.tsx";
import { Suppressed, useSuppress } from "./suppressed.tsx";

const LIMIT = 2000;

export function LeaksView() {
  const { subject, running, search } = usePage();
  const request = useRequest();
  // A link to a site opens the list in which it is a row.
  const persite = search.persite === true || search.site !== undefined;
  const query = useQuery(
    documentQuery(subject, "leaks", {
      ...request.window,
      ...request.filters,
      ...request.suppressions,
      limit: LIMIT,
      functions: LIMIT,
      show_suppressed: true,
    }),
  );
  return (
    <Answer query={query} what="the leaks">
      {(leaks) =>
        leaks.sites.length === 0 ? (
          <NoneShown leaks={leaks} running={running} />
        ) : (
          <Loaded leaks={leaks} persite={persite} />
        )
      }
    </Answer>
  );
}

/** No site is left to be shown: there is none, or all are suppressed. */
function NoneShown({ leaks, running }: { leaks: Leaks; running: boolean }) {
  const isSuppressed = leaks.suppressed.count > 0;
  const what = running ? "is live" : "leaked";
  return (
    <Empty title={isSuppressed ? `All that ${what} in this window is suppressed` : `Nothing ${what} in this window`}>
      {isSuppressed ? (
        <>
          <p>Every other block that was allocated in this window and passes the filters has been freed.</p>
          <p>
            <Suppressed leaks={leaks} />
          </p>
        </>
      ) : (
        <p>Every block that was allocated in it and passes the filters has been freed.</p>
      )}
      <NeverUnmapped leaks={leaks} />
    </Empty>
  );
}

function Loaded({ leaks, persite }: { leaks: Leaks; persite: boolean }) {
  const { search, go, running } = usePage();
  const copy = useCopy();
  const functionMenu = useFunctionMenu();
  const request = useRequest();
  const shown = search.verdict ?? "all";
  const pattern = useMemo(() => readPattern(search.q ?? ""), [search.q]);
  const sites = useMemo(
    () =>
      leaks.sites.filter(
        (site) =>
          (shown === "all" || verdictName(site.verdict) === shown) &&
          (pattern.kind !== "valid" ||
            site.stack.some((frame) => pattern.test(frameName(frame)) || pattern.test(frame.module ?? ""))),
      ),
    [leaks.sites, shown, pattern],
  );
  const byFunction = leaks.functions ?? [];
  const functions = useMemo(
    () =>
      (leaks.functions ?? []).filter(
        (row) =>
          (shown === "all" || verdictName(row.verdict) === shown) &&
          (pattern.kind !== "valid" || pattern.test(row.function) || pattern.test(row.module ?? "")),
      ),
    [leaks.functions, shown, pattern],
  );
  const counted = persite ? leaks.sites : byFunction;
  const columns = useMemo(() => columnsFor(leaks), [leaks]);
  const functionColumns = useMemo(() => functionColumnsFor(leaks), [leaks]);
  const selected = sites.find((site) => site.id === search.site) ?? sites[0];
  const sorting = useSorting("bytes");
  const suppress = useSuppress();
  const atExit = leaks.freed_at_exit ?? [];
  const chosen = functions.find((row) => isChosen(named(row), search.selected)) ?? functions[0];
  const none = persite ? sites.length === 0 : functions.length === 0;
  return (
    <div className="split-view">
      <div className="table-view">
        <ViewBar>
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
            <span className="muted wide-only">
              ({formatCount(leaks.leaked.bytes)} bytes) in {plural(leaks.leaked.count, "block")}
            </span>
          </span>
          <Suppressed leaks={leaks} />
          {atExit.length > 0 && (
            <span className="muted">
              {plural(atExit.length, "growing site")}{" "}
              <Term
                definition={`Not leaked, and in no sum: they kept growing, and were freed when the program ended. Largest: ${atExit
                  .slice(0, 5)
                  .map((site) => `${shortName(allocatorName(site.stack, site.id), 60)} ${formatBytes(site.bytes)}`)
                  .join(", ")}.`}
              >
                freed only at exit
              </Term>
            </span>
          )}
          <NeverUnmapped leaks={leaks} />
          {search.site !== undefined && selected?.id !== search.site && (
            <span className="warn">site {search.site} is not among the sites that leak here</span>
          )}
          {persite && leaks.total_sites > leaks.sites.length && (
            <span className="warn">
              the largest {formatCount(leaks.sites.length)} sites of {formatCount(leaks.total_sites)} are listed; filter
              to see others
            </span>
          )}
          {!persite && (leaks.total_functions ?? 0) > byFunction.length && (
            <span className="warn">
              the largest {formatCount(byFunction.length)} functions of {formatCount(leaks.total_functions ?? 0)} are
              listed; filter to see others
            </span>
          )}
          <span className="bar-end">
            <Segmented
              label="A row is"
              value={persite ? "site" : "function"}
              choices={[
                {
                  value: "function",
                  label: "Functions",
                  title: `One row for each function of the program: ${formatCount(leaks.total_functions ?? 0)}`,
                },
                {
                  value: "site",
                  label: "Sites",
                  title: `One row for each backtrace: ${formatCount(leaks.total_sites)}`,
                },
              ]}
              onChange={(value) => go({ persite: value === "site" || undefined, site: undefined, sort: undefined })}
            />
            <Select
              label="Verdict"
              value={shown}
              choices={[
                { value: "all", label: "all" },
                ...VERDICTS.map((kind) => ({
                  value: kind,
                  label: `${VERDICT_TEXT[kind].label} (${counted.filter((row) => verdictName(row.verdict) === kind).length})`,
                })),
              ]}
              onChange={(kind) =>
                go({ verdict: kind === "all" ? undefined : (kind as VerdictName) }, { replace: true })
              }
            />
            <Button
              quiet
              onClick={() =>
                persite
                  ? copy(toTsv(columns, sortedRows(sites, columns, sorting.keys)), plural(sites.length, "row"))
                  : copy(
                      toTsv(functionColumns, sortedRows(functions, functionColumns, sorting.keys)),
                      plural(functions.length, "row"),
                    )
              }
            >
              Copy table
            </Button>
            <Button
              quiet
              onClick={() =>
                persite
                  ? downloadCsv(columns, sortedRows(sites, columns, sorting.keys), "leaks-by-site.csv")
                  : downloadCsv(functionColumns, sortedRows(functions, functionColumns, sorting.keys), "leaks.csv")
              }
            >
              CSV
            </Button>
            <CopySql offer={leaksStatement(search, request.window, leaks, sorting.keys, persite)} />
          </span>
        </ViewBar>
        {none ? (
          <Empty title="No leak matches">
            <p>Change the search or the choice of verdict.</p>
          </Empty>
        ) : !persite ? (
          <DataTable
            label="Leaking functions"
            rows={functions}
            columns={functionColumns}
            rowKey={(row) => `${row.function} ${row.module} ${row.file}`}
            sorting={sorting}
            isSelected={(row) => row === chosen}
            functions={(row) => [row.function]}
            onSelect={(row) => go({ selected: identityOf(named(row)) }, { replace: true })}
            menu={(row) => [
              {
                label: "Its sites, one row each",
                run: () =>
                  go({
                    persite: true,
                    q: undefined,
                    filters: {
                      ...search.filters,
                      focus: withPattern(search.filters?.focus, patternOf(identityOf(named(row)))),
                    },
                  }),
              },
              suppress(row.function),
              "separator",
              ...functionMenu(named(row)),
            ]}
          />
        ) : (
          <DataTable
            label="Leaking sites"
            rows={sites}
            columns={columns}
            rowKey={(site) => site.id}
            sorting={sorting}
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
              suppress(allocatorName(site.stack, site.id)),
              { label: "Copy stack", run: () => copy(stackText(site.stack), "the stack") },
              ...allocatorMenu(site.stack, functionMenu),
            ]}
          />
        )}
      </div>
      {!persite && chosen && <ChosenFunction row={chosen} leaks={leaks} />}
      {persite && selected && (
        <aside className="side" aria-label="The selected leak">
          <h2 className="mono">{shortName(plainTypes(allocatorName(selected.stack, selected.id)), 160)}</h2>
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
              <dt>First leaked</dt>
              <dd>{formatInstant(selected.first_ns)}</dd>
            </div>
            <div>
              <dt>Last leaked</dt>
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
    bytesColumn(
      { id: "bytes", header: "Bytes", definition: "Leaked bytes of the site", width: "70px" },
      (site) => site.bytes,
    ),
    shareColumn(
      { id: "share", header: "%", definition: "Part of all leaked bytes", width: "68px" },
      (site) => site.bytes / total,
    ),
    countColumn(
      { id: "count", header: "Blocks", definition: "Leaked blocks of the site", width: "52px" },
      (site) => site.count,
    ),
    {
      id: "verdict",
      header: "Verdict",
      definition: "Verdict on the history of the site; hover for its meaning",
      width: "76px",
      value: (site) => verdictName(site.verdict),
      cell: (site) => <VerdictWord verdict={site.verdict} />,
    },
    functionColumn(
      {
        id: "function",
        header: "Allocated by",
        definition: "Innermost function that is of no standard library",
        width: "minmax(130px, 2fr)",
      },
      (site) => allocatorName(site.stack, site.id),
      (site) => allocatedBy(site.stack).by?.file,
    ),
    {
      id: "caller",
      header: "Called from",
      definition: "The next function of the stack",
      width: "minmax(90px, 1.4fr)",
      value: (site) => callerName(site.stack),
      cell: (site) => (
        <span className="mono muted" title={callerName(site.stack)}>
          {bareName(callerName(site.stack))}
        </span>
      ),
    },
    placeColumn(
      { id: "place", header: "Source", definition: "Source line, else the module", width: "minmax(120px, 1.4fr)" },
      (site) => allocatorPlace(site.stack),
    ),
    {
      id: "last",
      header: "Last leaked",
      definition: "Allocation of the last block that leaked",
      width: "70px",
      numeric: true,
      value: (site) => site.last_ns,
      cell: (site) => formatDuration(site.last_ns),
    },
  ];
}
