// Allocating backtraces, one a row; an open one has a page of its own.
import { getJson } from "../../api/client.ts";
import type { SiteRow, Sites } from "../../api/types.ts";
import { formatBytes, formatCount, formatDuration, formatExact, plural } from "../../lib/format.ts";
import { isChosen } from "../../lib/identity.ts";
import { bareName, location, rowName } from "../../lib/names.ts";
import { readPattern, serverPattern } from "../../lib/pattern.ts";
import { writeKeys } from "../../lib/sorting.ts";
import { sitesStatement } from "../../lib/sql-statements.ts";
import { countColumn, placeColumn } from "../../ui/columns.tsx";
import { Button } from "../../ui/controls.tsx";
import { CopySql } from "../../ui/copy-sql.tsx";
import { type Column, DataTable, downloadCsv, toTsv } from "../../ui/data-table.tsx";
import { useFunctionMenu } from "../../ui/function-menu.ts";
import { useCopy, useNotice } from "../../ui/notice.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { usePagedRows } from "../../ui/paged-rows.ts";
import { useSorting } from "../../ui/sorting.ts";
import { Sparkline } from "../../ui/sparkline.tsx";
import { Answer, Empty } from "../../ui/states.tsx";
import { ViewBar } from "../../ui/view-bar.tsx";
import { SitePage } from "./site-page.tsx";

const PAGE = 200;
const AMOUNTS = ["live", "allocated", "freed", "leaked", "at_peak", "temporary"] as const;
type AmountName = (typeof AMOUNTS)[number];
const SORTABLE = [...AMOUNTS, "count", "mean", "lifetime", "trend", "name", "source"] as const;

export function SitesView() {
  const { search } = usePage();
  return search.site ? <SitePage key={search.site} site={search.site} /> : <SiteList />;
}

function SiteList() {
  const { search, subject, go, running } = usePage();
  const request = useRequest();
  const copy = useCopy();
  const notice = useNotice();
  const functionMenu = useFunctionMenu();
  const sorting = useSorting(running ? "live" : "at_peak", SORTABLE);
  const pattern = readPattern(search.q ?? "");
  const parameters = {
    ...request.window,
    ...request.filters,
    sort: writeKeys(sorting.keys),
    search: pattern.kind === "valid" ? serverPattern(pattern.text) : undefined,
  };
  const paged = usePagedRows<Sites, SiteRow>({
    key: [subject.recording, "sites pages", parameters, subject.revision],
    pageRows: PAGE,
    fetchPage: (offset, limit, signal) =>
      getJson<Sites>(
        `recordings/${encodeURIComponent(subject.recording)}/sites`,
        { ...parameters, limit, offset },
        signal,
      ),
    rowsOf: (document) => document.sites,
    totalOf: (document) => document.total_sites,
  });
  const { first } = paged;
  const open = (site: SiteRow) => go({ site: site.id });

  return (
    <div className="table-view">
      <ViewBar>
        {first && <span className="muted">{plural(first.total_sites, "site")} with an event in this window</span>}
        <span className="spring" />
        <Button
          quiet
          onClick={() => copy(toTsv(COLUMNS, paged.head), plural(paged.head.length, "row"))}
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
              .then((rows) => downloadCsv(COLUMNS, rows, "sites.csv"))
              .catch((error: unknown) => notice(error instanceof Error ? error.message : String(error)))
          }
        >
          CSV
        </Button>
        <CopySql offer={sitesStatement(search, request.window, sorting.keys)} />
      </ViewBar>
      <Answer query={{ ...paged, data: first }} what="the sites">
        {() =>
          paged.total === 0 ? (
            <Empty title="No site">
              <p>Nothing was allocated or freed in this window that passes the filters and the search.</p>
            </Empty>
          ) : (
            <DataTable
              label="Sites"
              rows={NO_ROWS}
              rowAt={paged.rowAt}
              onRange={paged.onRange}
              columns={COLUMNS}
              rowKey={(site) => site.id}
              total={paged.total}
              sorting={sorting}
              functions={(site) => [siteName(site)]}
              isSelected={(site) => isChosen({ ...site, name: siteName(site) }, search.selected)}
              onOpen={open}
              menu={(site) => [
                { label: "Open the site", hint: "Enter", run: () => open(site) },
                { label: "Its allocations", run: () => go({ site: site.id }, { view: "allocations" }) },
                "separator",
                ...functionMenu({ name: siteName(site), module: site.module, file: site.file, line: site.line }),
              ]}
            />
          )
        }
      </Answer>
    </div>
  );
}

/** Rows that are saved at once. */
const MOST_SAVED = 100_000;
const NO_ROWS: readonly SiteRow[] = [];

/** What its allocating function is called in every view. */
export function siteName(site: SiteRow): string {
  return site.function ?? site.offset ?? site.id;
}

/** `width`: of a header that does not fit into the usual one together with the sign of its order. */
const AMOUNT_TEXT: Record<AmountName, { header: string; definition: string; width?: string }> = {
  live: { header: "Live", definition: "Live at the end of the window" },
  allocated: { header: "Allocated", definition: "Allocated in the window", width: "90px" },
  freed: { header: "Freed", definition: "Freed in the window" },
  leaked: { header: "Leaked", definition: "Allocated in the window and never freed" },
  at_peak: { header: "At peak", definition: "Live when live bytes were highest; under a filter, when its own were" },
  temporary: { header: "Temporary", definition: "Allocated in the window and freed again at once", width: "98px" },
};

const amount = (id: AmountName): Column<SiteRow> => ({
  id,
  header: AMOUNT_TEXT[id].header,
  definition: `${AMOUNT_TEXT[id].definition}, bytes`,
  width: AMOUNT_TEXT[id].width ?? "72px",
  numeric: true,
  value: (site) => site[id].bytes,
  cell: (site) => (
    <span
      className={site[id].bytes === 0 ? "muted" : undefined}
      title={`${formatExact(site[id].bytes, "bytes")}, ${formatExact(site[id].count, "count")}`}
    >
      {formatBytes(site[id].bytes)}
    </span>
  ),
});

function lifetimesText({ lifetimes }: SiteRow): string {
  const { min_ns, p10_ns, p50_ns, p90_ns, max_ns, censored } = lifetimes;
  const parts = [
    `shortest ${formatDuration(min_ns)}`,
    `10% ${formatDuration(p10_ns)}`,
    `median ${formatDuration(p50_ns)}`,
    `90% ${formatDuration(p90_ns)}`,
    `longest ${formatDuration(max_ns)}`,
  ];
  return censored > 0 ? `${parts.join(", ")}; ${plural(censored, "block")} had not ended` : parts.join(", ");
}

const COLUMNS: Column<SiteRow>[] = [
  ...AMOUNTS.map(amount),
  countColumn(
    { id: "count", header: "Blocks", definition: "Blocks allocated in the window", width: "72px" },
    (site) => site.allocated.count,
  ),
  {
    id: "lifetime",
    header: "Lifetime",
    definition: "Median lifetime of the blocks allocated in the window; the tooltip has shortest, 10%, 90% and longest",
    width: "76px",
    numeric: true,
    value: (site) => site.lifetimes.p50_ns,
    cell: (site) =>
      site.allocated.count > 0 ? <span title={lifetimesText(site)}>{formatDuration(site.lifetimes.p50_ns)}</span> : "",
  },
  {
    id: "mean",
    header: "Mean size",
    definition: "Mean bytes per block allocated in the window",
    width: "72px",
    numeric: true,
    value: (site) => (site.allocated.count > 0 ? site.allocated.bytes / site.allocated.count : 0),
    cell: (site) =>
      site.allocated.count > 0 ? formatBytes(Math.round(site.allocated.bytes / site.allocated.count)) : "",
  },
  {
    id: "trend",
    header: "Trend",
    definition:
      "Live bytes at 32 instants of the window. Its order goes by growth: live bytes at the end of the window less those at its start",
    width: "72px",
    largestFirst: true,
    cell: (site) => <Sparkline values={site.trend} width={72} />,
  },
  {
    id: "name",
    isSubject: true,
    header: "Allocated by",
    definition: "Innermost function of the backtrace that is of no standard library, and who called it",
    width: "minmax(200px, 3fr)",
    value: siteName,
    cell: (site) => (
      <>
        <span className="mono" title={siteName(site)}>
          {rowName(siteName(site), site.file, 200)}
        </span>
        {site.called_from && <span className="mono muted caller"> ← {bareName(site.called_from)}</span>}
      </>
    ),
  },
  placeColumn(
    { id: "source", header: "Source", definition: "Source line, else the module", width: "minmax(130px, 1.5fr)" },
    (site) => location(site.file, site.line) ?? site.module,
  ),
];
