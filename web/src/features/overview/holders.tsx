// Who holds what the metric counts: the functions of the program that allocated it; their sites are a click away.
import type { Functions, Metric } from "../../api/types.ts";
import { formatExact, formatInstant, formatPercent, formatValue } from "../../lib/format.ts";
import { identityOf, patternOf } from "../../lib/identity.ts";
import { bareName, location } from "../../lib/names.ts";
import { withPattern } from "../../lib/pattern.ts";
import { Share } from "../../ui/controls.tsx";
import { usePage } from "../../ui/page.ts";
import { LitLine } from "./lit-line.tsx";
import { PageLink } from "./page-link.tsx";

const TITLE: Record<Metric, string> = {
  live: "Top holders of live memory",
  peak: "Top peak holders",
  leaked: "Top leaking functions",
  allocated: "Top allocators",
  freed: "Top allocators of freed memory",
  grown: "Top growing functions",
  temporary: "Top allocators of temporary memory",
};

export function Holders({ functions }: { functions: Functions | undefined }) {
  const { search } = usePage();
  const total = functions?.total ?? 0;
  const lines = functions?.rows
    .filter((row) => row.flat !== 0)
    .map((row) => (
      <LitLine key={row.id} names={[row.name]}>
        <td className="numeric" title={formatExact(row.flat, functions.unit)}>
          {formatValue(row.flat, functions.unit)}
        </td>
        <td className="numeric">
          <Share part={row.flat / (total || 1)}>{formatPercent(row.flat / (total || 1))}</Share>
        </td>
        <td>
          <PageLink patch={{ selected: identityOf(row), metric: functions.metric }} view="flamegraph">
            <span className="mono" title={row.name}>
              {bareName(row.name, 70)}
            </span>
          </PageLink>{" "}
          <span className="muted">{location(row.file, row.line) ?? row.module}</span>
        </td>
        <td>
          <PageLink
            patch={{
              by: "site",
              selected: identityOf(row),
              metric: functions.metric,
              filters: { ...search.filters, focus: withPattern(search.filters?.focus, patternOf(identityOf(row))) },
            }}
            view="functions"
          >
            sites
          </PageLink>
        </td>
      </LitLine>
    ));
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
            <th>Allocated by</th>
            <th>
              <span className="visually-hidden">More</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {lines}
          {lines?.length === 0 && (
            <tr>
              <td colSpan={4} className="muted">
                {search.q ? "No function here matches the search." : "No block passes the filters here."}
              </td>
            </tr>
          )}
        </tbody>
      </table>
    </section>
  );
}
