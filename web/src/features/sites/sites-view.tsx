// Allocating backtraces, one a row; an open one has a page of its own.
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { getJson } from "../../api/client.ts";
import type { SiteRow, Sites } from "../../api/types.ts";
import { formatBytes, formatCount, formatDuration, formatExact, plural } from "../../lib/format.ts";
import { isChosen } from "../../lib/identity.ts";
import { location, shortName } from "../../lib/names.ts";
import { readPattern, serverPattern } from "../../lib/pattern.ts";
import { readSort, writeSort } from "../../lib/search-params.ts";
import { Button } from "../../ui/controls.tsx";
import { type Column, DataTable, toTsv } from "../../ui/data-table.tsx";
import { useFunctionMenu } from "../../ui/function-menu.ts";
import { useCopy } from "../../ui/notice.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { Sparkline } from "../../ui/sparkline.tsx";
import { Answer, Empty } from "../../ui/states.tsx";
import { SitePage } from "./site-page.tsx";

const PAGE = 200;
const AMOUNTS = ["live", "allocated", "freed", "leaked", "at_peak", "temporary"] as const;
type AmountName = (typeof AMOUNTS)[number];
const SORTABLE = [...AMOUNTS, "count"] as const;

export function SitesView() {
  const { search } = usePage();
  return search.site ? <SitePage key={search.site} site={search.site} /> : <SiteList />;
}

function SiteList() {
  const { search, subject, go } = usePage();
  const request = useRequest();
  const copy = useCopy();
  const functionMenu = useFunctionMenu();
  const { column: sort, reversed } = readSort(search.sort, SORTABLE, { column: "live", reversed: false });
  const pattern = readPattern(search.q ?? "");
  const parameters = {
    ...request.window,
    ...request.filters,
    sort,
    ascending: reversed || undefined,
    search: pattern.kind === "valid" ? serverPattern(pattern.text) : undefined,
    limit: PAGE,
  };
  const query = useInfiniteQuery({
    queryKey: [subject.recording, "sites pages", parameters, subject.revision],
    queryFn: ({ pageParam, signal }) =>
      getJson<Sites>(
        `recordings/${encodeURIComponent(subject.recording)}/sites`,
        { ...parameters, offset: pageParam },
        signal,
      ),
    initialPageParam: 0,
    getNextPageParam: (last, pages) => {
      const have = pages.reduce((sum, page) => sum + page.sites.length, 0);
      return have < last.total_sites && last.sites.length > 0 ? have : undefined;
    },
    placeholderData: keepPreviousData,
  });
  const first = query.data?.pages[0];
  const sites = useMemo(() => query.data?.pages.flatMap((page) => page.sites) ?? [], [query.data]);
  const open = (site: SiteRow) => go({ site: site.id });

  return (
    <div className="table-view">
      <div className="view-bar">
        {first && <span className="muted">{plural(first.total_sites, "site")} with an event in this window</span>}
        <span className="spring" />
        <Button
          quiet
          onClick={() => copy(toTsv(COLUMNS, sites), plural(sites.length, "row"))}
          title="Rows that are loaded, tab separated"
        >
          Copy table
        </Button>
      </div>
      <Answer query={{ ...query, data: first }} what="the sites">
        {() =>
          sites.length === 0 ? (
            <Empty title="No site">
              <p>Nothing was allocated or freed in this window that passes the filters and the search.</p>
            </Empty>
          ) : (
            <DataTable
              label="Sites"
              rows={sites}
              columns={COLUMNS}
              rowKey={(site) => site.id}
              total={first?.total_sites ?? sites.length}
              sorting={{
                by: "server",
                column: sort,
                reversed,
                sortable: SORTABLE,
                onSort: (column, back) => go({ sort: writeSort({ column, reversed: back }) }, { replace: true }),
              }}
              functions={(site) => [siteName(site)]}
              isSelected={(site) => isChosen({ ...site, name: siteName(site) }, search.selected)}
              onOpen={open}
              menu={(site) => [
                { label: "Open the site", hint: "Enter", run: () => open(site) },
                { label: "Its allocations", run: () => go({ site: site.id }, { view: "allocations" }) },
                "separator",
                ...functionMenu({ name: siteName(site), module: site.module, file: site.file, line: site.line }),
              ]}
              onNearEnd={() => {
                if (query.hasNextPage && !query.isFetchingNextPage) void query.fetchNextPage();
              }}
            />
          )
        }
      </Answer>
    </div>
  );
}

/** What its allocating function is called in every view. */
export function siteName(site: SiteRow): string {
  return site.function ?? site.offset ?? site.id;
}

const AMOUNT_TEXT: Record<AmountName, { header: string; definition: string }> = {
  live: { header: "Live", definition: "Live at the end of the window" },
  allocated: { header: "Allocated", definition: "Allocated in the window" },
  freed: { header: "Freed", definition: "Freed in the window" },
  leaked: { header: "Leaked", definition: "Allocated in the window and never freed" },
  at_peak: { header: "At peak", definition: "Live when live bytes were highest; under a filter, when its own were" },
  temporary: { header: "Temporary", definition: "Allocated in the window and freed again at once" },
};

const amount = (id: AmountName): Column<SiteRow> => ({
  id,
  header: AMOUNT_TEXT[id].header,
  definition: `${AMOUNT_TEXT[id].definition}, bytes`,
  width: "72px",
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
    `10 % ${formatDuration(p10_ns)}`,
    `median ${formatDuration(p50_ns)}`,
    `90 % ${formatDuration(p90_ns)}`,
    `longest ${formatDuration(max_ns)}`,
  ];
  return censored > 0 ? `${parts.join(", ")}; ${plural(censored, "block")} had not ended` : parts.join(", ");
}

const COLUMNS: Column<SiteRow>[] = [
  ...AMOUNTS.map(amount),
  {
    id: "count",
    header: "Blocks",
    definition: "Blocks allocated in the window",
    width: "72px",
    numeric: true,
    value: (site) => site.allocated.count,
    cell: (site) => formatCount(site.allocated.count),
  },
  {
    id: "lifetime",
    header: "Lifetime",
    definition:
      "Median lifetime of the blocks allocated in the window; the tooltip has shortest, 10 %, 90 % and longest",
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
    definition: "Live bytes at 32 instants of the window",
    width: "72px",
    cell: (site) => <Sparkline values={site.trend} width={72} />,
  },
  {
    id: "function",
    header: "Allocated by",
    definition: "Innermost function of the backtrace that is of no standard library, and who called it",
    width: "minmax(150px, 3fr)",
    value: siteName,
    cell: (site) => (
      <>
        <span className="mono">{shortName(siteName(site), 200)}</span>
        {site.called_from && <span className="mono muted caller"> ← {shortName(site.called_from, 120)}</span>}
      </>
    ),
  },
  {
    id: "place",
    header: "Source",
    definition: "Source line, else the module",
    width: "minmax(100px, 1fr)",
    value: (site) => location(site.file, site.line) ?? site.module ?? "",
    cell: (site) => <span className="muted">{location(site.file, site.line) ?? site.module}</span>,
  },
];
