// Leaks by function: one leak is one row with one verdict, its sites are inside.
import type { LeakFunction, Leaks } from "../../api/types.ts";
import { formatBytes, formatCount, formatDuration, formatInstant, plural, sentence } from "../../lib/format.ts";
import type { Named } from "../../lib/identity.ts";
import { bareName, location, placedName, shortName } from "../../lib/names.ts";
import { plainTypes } from "../../lib/plain-types.ts";
import { allocatorPlace, callerName } from "../../lib/stack.ts";
import { bytesColumn, countColumn, functionColumn, placeColumn, shareColumn } from "../../ui/columns.tsx";
import type { Column } from "../../ui/data-table.tsx";
import { usePage } from "../../ui/page.ts";
import { Sparkline } from "../../ui/sparkline.tsx";
import { Stack } from "../../ui/stack.tsx";
import { VerdictBadge, VerdictWord, verdictName } from "../../ui/verdict.tsx";

/** What menus and links know of a row. */
export function named(row: LeakFunction): Named {
  return { name: row.function, module: row.module ?? null, file: row.file ?? null, line: row.line ?? null };
}

export function functionColumnsFor(leaks: Leaks): Column<LeakFunction>[] {
  const total = leaks.leaked.bytes || 1;
  return [
    bytesColumn(
      { id: "bytes", header: "Bytes", definition: "Leaked bytes of the function, at all of its sites", width: "76px" },
      (row) => row.bytes,
    ),
    shareColumn(
      { id: "share", header: "%", definition: "Part of all leaked bytes", width: "72px" },
      (row) => row.bytes / total,
    ),
    countColumn({ id: "count", header: "Blocks", definition: "Leaked blocks", width: "66px" }, (row) => row.count),
    {
      id: "curve",
      header: "Over time",
      definition:
        "Live bytes of its leaking sites, from the start of the recording to its end; sorted by the rate of growth",
      width: "104px",
      value: (row) => row.verdict.bytes_per_second,
      cell: (row) => <Sparkline values={row.curve} />,
    },
    {
      id: "verdict",
      header: "Verdict",
      definition: "Verdict on the history of all its sites together; hover for the reason",
      width: "84px",
      value: (row) => verdictName(row.verdict),
      cell: (row) => <VerdictWord verdict={row.verdict} />,
    },
    functionColumn(
      {
        id: "function",
        header: "Allocated by",
        definition: "Innermost function that is of no standard library",
        width: "minmax(150px, 3fr)",
      },
      (row) => row.function,
      (row) => row.file,
      (row) => row.library,
    ),
    countColumn(
      { id: "sites", header: "Sites", definition: "Backtraces at which it leaks", width: "52px" },
      (row) => row.total_sites,
    ),
    placeColumn(
      {
        id: "place",
        header: "Source",
        definition: "Source line of the largest site, else the module",
        width: "minmax(120px, 2fr)",
      },
      (row) => location(row.file, row.line) ?? row.module,
    ),
    {
      id: "last",
      header: "Last leaked",
      definition: "Allocation of the last block that leaked",
      width: "84px",
      numeric: true,
      value: (row) => row.last_ns,
      cell: (row) => formatDuration(row.last_ns),
    },
  ];
}

/** The chosen function: its verdict, and its sites. */
export function ChosenFunction({ row, leaks }: { row: LeakFunction; leaks: Leaks }) {
  const { go } = usePage();
  const ids = new Set(row.sites);
  const sites = leaks.sites.filter((site) => ids.has(site.id));
  const [largest] = sites;
  return (
    <aside className="side" aria-label="The selected leak">
      <h2 className="mono" title={row.function}>
        {placedName(shortName(plainTypes(row.function), 160), row.file)}
      </h2>
      <p>
        <VerdictBadge verdict={row.verdict} /> {formatBytes(row.bytes)} in {plural(row.count, "block")}
        {row.verdict.bytes_per_second > 0 && `, ${formatBytes(row.verdict.bytes_per_second)} more every second`}
      </p>
      <figure className="growth">
        <figcaption className="muted">Live bytes over the whole recording</figcaption>
        <Sparkline values={row.curve} width={330} height={64} />
      </figure>
      <details className="why" open>
        <summary>Why</summary>
        <p>{sentence(row.verdict.why)}</p>
      </details>
      <dl className="facts-list">
        <div>
          <dt>First leaked</dt>
          <dd>{formatInstant(row.first_ns)}</dd>
        </div>
        <div>
          <dt>Last leaked</dt>
          <dd>{formatInstant(row.last_ns)}</dd>
        </div>
      </dl>
      <h3>
        {plural(row.total_sites, "site")}
        {row.total_sites > sites.length && <span className="muted">, the largest {formatCount(sites.length)}</span>}
      </h3>
      <table className="small-table">
        <tbody>
          {sites.slice(0, 30).map((site) => (
            <tr key={site.id}>
              <td className="numeric">{formatBytes(site.bytes)}</td>
              <td className="numeric">{formatCount(site.count)}</td>
              <td>
                <button type="button" className="link" onClick={() => go({ site: site.id }, { view: "sites" })}>
                  {site.id}
                </button>{" "}
                <Caller name={callerName(site.stack)} place={allocatorPlace(site.stack)} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {largest && (
        <>
          <p className="muted">The largest: {sentence(largest.verdict.why)}</p>
          <Stack stack={largest.stack} label="Its backtrace, innermost first" />
        </>
      )}
    </aside>
  );
}

/** What tells the sites of one function apart: who called it, else where in it they are. */
function Caller({ name, place }: { name: string; place: string | undefined }) {
  if (name === "") return <span className="mono muted">{place}</span>;
  return (
    <span className="mono muted" title={name}>
      ← {bareName(name, 60)}
    </span>
  );
}
