// The files that allocate, the largest first: a way in where none is open.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Functions } from "../../api/types.ts";
import { formatCount, formatExact, formatPercent, formatValue } from "../../lib/format.ts";
import { Share } from "../../ui/controls.tsx";
import { useHref, usePage, useRequest } from "../../ui/page.ts";
import { MatchCount, useSearch } from "../../ui/search.tsx";
import { Answer, Empty } from "../../ui/states.tsx";
import { flatByFile, inOrder, UNKNOWN } from "./files.ts";

const LIMIT = 200;
/** Functions of the program whose allocations are added up by file. */
const MOST_FUNCTIONS = 1000;

export function FileList() {
  const { subject } = usePage();
  const request = useRequest();
  const wanted = { ...request.metric, ...request.filters };
  const query = useQuery(documentQuery(subject, "functions", { ...wanted, by: "file", sort: "cum", limit: LIMIT }));
  const own = useQuery(documentQuery(subject, "functions", { ...wanted, by: "program", limit: MOST_FUNCTIONS }));
  return (
    <Answer query={query} what="the source files">
      {(files) => <Files files={files} functions={own.data} />}
    </Answer>
  );
}

function Files({ files, functions }: { files: Functions; functions: Functions | undefined }) {
  const { go } = usePage();
  const href = useHref();
  const find = useSearch();
  const flat = useMemo(() => flatByFile(functions), [functions]);
  const known = inOrder(
    files.rows.filter((row) => row.name !== UNKNOWN),
    flat,
  );
  const shown = known.filter((row) => find.hit(row.name));
  if (known.length === 0) {
    return (
      <Empty title="No source file is known here">
        <p>
          {files.total_rows === 0
            ? "No block passes the filters in this window."
            : "None of the code has line numbers: build it with -g, or install its debug symbols."}{" "}
          The Recording view has the reason for each module.
        </p>
      </Empty>
    );
  }
  const without = functions && flat.get(UNKNOWN);
  const part = (value: number) => value / (files.total || 1);
  return (
    <section className="source-files" aria-labelledby="source-files">
      <h2 id="source-files">
        Source files{" "}
        <span className="muted">
          {files.metric}, {formatValue(files.total, files.unit)} in all
          {without ? `; ${formatPercent(part(without))} in code without line numbers` : ""}
        </span>
      </h2>
      <MatchCount search={find} shown={shown.length} of={known.length} what="files" />
      <table className="small-table">
        <thead>
          <tr>
            <th
              className="numeric"
              title="Allocated by functions of the file, what libraries allocate for them included"
            >
              Flat
            </th>
            <th className="numeric">%</th>
            <th className="numeric" title="With a line of the file anywhere on the stack">
              Cum
            </th>
            <th>File</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={row.id}>
              <td className="numeric" title={formatExact(flat.get(row.name) ?? 0, files.unit)}>
                {formatValue(flat.get(row.name) ?? 0, files.unit)}
              </td>
              <td className="numeric">
                <Share part={part(flat.get(row.name) ?? 0)}>{formatPercent(part(flat.get(row.name) ?? 0))}</Share>
              </td>
              <td className="numeric" title={formatExact(row.cum, files.unit)}>
                {formatValue(row.cum, files.unit)}
              </td>
              <td>
                <a
                  className="mono"
                  href={href({ file: row.name })}
                  onClick={(event) => {
                    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
                    event.preventDefault();
                    go({ file: row.name });
                  }}
                >
                  {row.name}
                </a>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {files.total_rows > files.rows.length && (
        <p className="muted">
          The first {formatCount(files.rows.length)} of {formatCount(files.total_rows)}.
        </p>
      )}
    </section>
  );
}
