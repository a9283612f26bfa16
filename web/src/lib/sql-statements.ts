// Statements in SQL that give the rows of a table of the page, in its order: for the SQL view, and for “heaptrace sql”.

import type { Parameters } from "../api/client.ts";
import type { Leaks } from "../api/types.ts";
import type { PageSearch } from "./search-params.ts";
import type { SortKey } from "./sorting.ts";

/** A statement, or the reason why there is none. */
export type SqlOffer = { statement: string; why?: undefined } | { statement?: undefined; why: string };

/** How a column of the page is sorted in SQL: figures begin with the largest, texts with A. */
type SqlOrder = Record<string, readonly { by: string; text?: boolean }[]>;

interface Rows {
  select: readonly string[];
  from: string;
  where?: readonly string[];
  group?: readonly string[];
  keys: readonly SortKey[];
  order: SqlOrder;
  /** What decides among equals. */
  last: string;
}

/** Most suppressed sites that a statement names. */
const MOST_NAMED = 200;

/** Reason why there is no statement; `undefined` if there is one. */
function obstacle(search: PageSearch, isSearched: boolean): string | undefined {
  const filtered = Object.keys(search.filters ?? {}).length > 0;
  if (filtered && isSearched && search.q) return "Filters and the search are no part of SQL: take them away first";
  if (filtered) return "Filters are no part of SQL: take them away first";
  if (isSearched && search.q) return "The search is no part of SQL: take it away first";
  return undefined;
}

/** By function, file, module, thread or site. */
export function functionsStatement(
  search: PageSearch,
  by: string,
  measured: Parameters,
  keys: readonly SortKey[],
): SqlOffer {
  const unit = measured["unit"] === "count" ? "count" : "bytes";
  const other = unit === "bytes" ? "count" : "bytes";
  const { metric, from, to, at } = measured;
  return offer(obstacle(search, true), {
    select: ["function", "module", "file", "line", "flat_bytes", "flat_count", "cum_bytes", "cum_count"],
    from: call("functions", [metric, from, to, at, by === "function" ? undefined : by]),
    keys,
    order: {
      flat: [{ by: `flat_${unit}` }],
      cum: [{ by: `cum_${unit}` }],
      other: [{ by: `flat_${other}` }],
      name: [{ by: "function", text: true }],
      module: [{ by: "module", text: true }],
      source: [
        { by: "file", text: true },
        { by: "line", text: true },
      ],
    },
    last: `flat_${unit} DESC, cum_${unit} DESC, function`,
  });
}

/** Allocating backtraces. */
export function sitesStatement(search: PageSearch, window: Parameters, keys: readonly SortKey[]): SqlOffer {
  const amounts = ["live", "allocated", "freed", "leaked", "temporary"] as const;
  return offer(obstacle(search, true), {
    select: [
      "site",
      "function",
      "called_from",
      "file",
      "line",
      "module",
      "live_bytes",
      "allocated_bytes",
      "freed_bytes",
      "leaked_bytes",
      "peak_bytes",
      "temporary_bytes",
      "allocated_count",
      "lifetime_p50_ns",
    ],
    from: call("sites", [window["from"], window["to"]]),
    keys,
    order: {
      ...Object.fromEntries(amounts.map((name) => [name, [{ by: `${name}_bytes` }]])),
      at_peak: [{ by: "peak_bytes" }],
      count: [{ by: "allocated_count" }],
      mean: [{ by: "CAST(allocated_bytes AS REAL) / allocated_count" }],
      lifetime: [{ by: "lifetime_p50_ns" }],
      trend: [{ by: "allocated_bytes - freed_bytes" }],
      name: [{ by: "function", text: true }],
      source: [
        { by: "COALESCE(file, module)", text: true },
        { by: "line", text: true },
      ],
    },
    last: "site",
  });
}

/** What was never freed, by function or by site. */
export function leaksStatement(
  search: PageSearch,
  window: Parameters,
  leaks: Leaks,
  keys: readonly SortKey[],
  persite: boolean,
): SqlOffer {
  const suppressed = leaks.suppressed_sites ?? [];
  const listed = suppressed.reduce((sum, site) => sum + site.count, 0);
  const why =
    obstacle(search, true) ??
    (search.verdict ? "The choice of a verdict is no part of SQL: take it away first" : undefined) ??
    (listed < leaks.suppressed.count || suppressed.length > MOST_NAMED
      ? "More sites are suppressed than a statement can name: show them first"
      : undefined);
  const number = (id: string) => id.replace(/^s/, "");
  const late = leaks.sites.filter((site) => site.verdict.freed_at_exit).map((site) => number(site.id));
  const isLeft = late.length > 0 ? `(freed_at_exit = 0 OR site IN (${late.join(", ")}))` : "freed_at_exit = 0";
  const named = suppressed.map((site) => number(site.id));
  const place = [
    { by: "file", text: true },
    { by: "line", text: true },
  ] as const;
  const shared = { bytes: [{ by: "bytes" }], share: [{ by: "bytes" }], count: [{ by: "count" }] };
  const common = {
    from: call("leaks", [window["from"], window["to"]]),
    where: [isLeft, ...(named.length > 0 ? [`site NOT IN (${named.join(", ")})`] : [])],
    keys,
  };
  if (persite) {
    return offer(why, {
      ...common,
      select: ["site", "function", "file", "line", "module", "verdict", "bytes", "count", "first_ns", "last_ns", "why"],
      order: {
        ...shared,
        verdict: [{ by: "verdict", text: true }],
        function: [{ by: "function", text: true }],
        place,
        last: [{ by: "last_ns" }],
      },
      last: "bytes DESC, count DESC, site",
    });
  }
  return offer(why, {
    ...common,
    select: [
      "function",
      "module",
      "file",
      "sum(bytes) AS bytes",
      "sum(count) AS count",
      "count(*) AS sites",
      "max(last_ns) AS last_ns",
    ],
    group: ["function", "module", "file"],
    order: {
      ...shared,
      function: [{ by: "function", text: true }],
      sites: [{ by: "sites" }],
      place: [{ by: "file", text: true }],
      last: [{ by: "last_ns" }],
    },
    last: "bytes DESC, count DESC, function",
  });
}

/** Who allocates and frees. */
export function threadsStatement(
  search: PageSearch,
  window: Parameters,
  keys: readonly SortKey[],
  unit: "bytes" | "count",
): SqlOffer {
  const amounts = ["allocated", "freed", "live", "leaked", "temporary"] as const;
  return offer(obstacle(search, false), {
    select: ["thread", "os_thread", "name", ...amounts.map((name) => `${name}_${unit}`), "started_ns", "ended_ns"],
    from: call("thread_sums", [window["from"], window["to"]]),
    keys,
    order: {
      ...Object.fromEntries(amounts.map((name) => [name, [{ by: `${name}_${unit}` }]])),
      name: [{ by: "name", text: true }],
      id: [{ by: "thread" }],
      os: [{ by: "os_thread" }],
      start: [{ by: "started_ns" }],
      end: [{ by: "coalesce(ended_ns, 9223372036854775807)" }],
    },
    last: "thread",
  });
}

function offer(why: string | undefined, rows: Rows): SqlOffer {
  if (why !== undefined) return { why };
  const order = rows.keys.flatMap(({ column, reversed }) =>
    (rows.order[column] ?? []).map(({ by, text }) => ((text ?? false) === reversed ? `${by} DESC` : by)),
  );
  const lines = [
    `SELECT ${rows.select.join(", ")}`,
    `FROM ${rows.from}`,
    ...(rows.where ? [`WHERE ${rows.where.join(" AND ")}`] : []),
    ...(rows.group ? [`GROUP BY ${rows.group.join(", ")}`] : []),
    `ORDER BY ${[...order, rows.last].join(", ")}`,
  ];
  return { statement: lines.join("\n") };
}

type Argument = Parameters[string];

/** A function of SQL with its arguments; those at the end that were not given are left out. */
function call(name: string, given: readonly Argument[]): string {
  const last = given.findLastIndex((value) => value !== undefined);
  return `${name}(${given
    .slice(0, last + 1)
    .map(literal)
    .join(", ")})`;
}

function literal(value: Argument): string {
  if (typeof value === "number") return String(Math.round(value));
  return value === undefined ? "NULL" : `'${String(value).replaceAll("'", "''")}'`;
}
