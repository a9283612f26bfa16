// Who holds what the metric counts: backtraces by the function that is the program's own, or functions where the
// server has no such list.
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Functions, Metric, SiteRow } from "../../api/types.ts";
import { formatInstant, formatPercent, formatValue } from "../../lib/format.ts";
import { identityOf, type Named } from "../../lib/identity.ts";
import { location, shortName } from "../../lib/names.ts";
import { Share } from "../../ui/controls.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { LitLine } from "./lit-line.tsx";
import { PageLink } from "./page-link.tsx";

const TITLE: Record<Metric, string> = {
  live: "Top holders of live memory",
  peak: "Top peak holders",
  leaked: "Top leaking sites",
  allocated: "Top allocators",
  freed: "Top allocators of freed memory",
  grown: "Top growing sites",
  temporary: "Top allocators of temporary memory",
};

/** By which column sites have the metric. */
const COLUMN = {
  live: "live",
  peak: "at_peak",
  leaked: "leaked",
  allocated: "allocated",
  freed: "freed",
  grown: undefined,
  temporary: "temporary",
} as const satisfies Record<Metric, keyof SiteRow | undefined>;

export function Holders({ functions, limit }: { functions: Functions | undefined; limit: number }) {
  const { search, subject } = usePage();
  const request = useRequest();
  const column =
    functions && functions.unit === "bytes" && search.at === undefined ? COLUMN[functions.metric] : undefined;
  const sites = useQuery({
    ...documentQuery(subject, "sites", { ...request.window, ...request.filters, sort: column, limit }),
    enabled: column !== undefined,
  });
  const total = functions?.total ?? 0;
  const line = (key: string, value: number, subject: Named, from: ReactNode) => (
    <LitLine key={key} names={[subject.name]}>
      <td className="numeric">{formatValue(value, functions?.unit ?? "bytes")}</td>
      <td className="numeric">
        <Share part={value / (total || 1)}>{formatPercent(value / (total || 1))}</Share>
      </td>
      <td>
        <PageLink patch={{ selected: identityOf(subject), metric: functions?.metric }} view="flamegraph">
          <span className="mono">{shortName(subject.name, 70)}</span>
        </PageLink>{" "}
        <span className="muted">
          {from}
          {location(subject.file, subject.line) ?? subject.module}
        </span>
      </td>
    </LitLine>
  );
  const lines = column
    ? sites.data?.sites
        .filter((site) => site[column].bytes > 0)
        .map((site) =>
          line(
            site.id,
            site[column].bytes,
            { ...site, name: site.function ?? site.offset ?? site.id },
            site.called_from && <span className="mono">← {shortName(site.called_from, 40)} </span>,
          ),
        )
    : functions?.rows.filter((row) => row.flat !== 0).map((row) => line(row.id, row.flat, row, ""));
  return (
    <section aria-labelledby="holders">
      <h2 id="holders">
        {TITLE[functions?.metric ?? "peak"]}{" "}
        <span className="muted">
          {functions && formatValue(functions.total, functions.unit)}
          {functions?.peak_of && functions.at_ns != null && `, at ${formatInstant(functions.at_ns)}`}
          {functions?.peak_of === "filter" && ", the peak of what passes the filter"}
        </span>
      </h2>
      <table className="small-table">
        <thead>
          <tr>
            <th className="numeric">{functions?.unit === "count" ? "Blocks" : "Bytes"}</th>
            <th className="numeric">%</th>
            <th>{column ? "Allocated by" : "Function"}</th>
          </tr>
        </thead>
        <tbody>
          {lines}
          {lines?.length === 0 && (
            <tr>
              <td colSpan={3} className="muted">
                No block passes the filters here.
              </td>
            </tr>
          )}
        </tbody>
      </table>
    </section>
  );
}
