// Sums of the chosen window, and of what passes the filters, beside those of the whole recording.
import { useQueries } from "@tanstack/react-query";
import { documentQuery } from "../../api/queries.ts";
import { formatExact, formatSigned, formatValue } from "../../lib/format.ts";
import { effectiveWindow } from "../../lib/search-params.ts";
import { usePage, useRequest } from "../../ui/page.ts";
import { Term } from "../../ui/term.tsx";

const ASKED = [
  { metric: "allocated", label: "Allocated", definition: "Bytes of blocks allocated in the window." },
  { metric: "freed", label: "Freed", definition: "Bytes of blocks freed in the window." },
  { metric: "grown", label: "Grown", definition: "Live bytes at the end of the window minus those at its start." },
  { metric: "live", label: "Live at the end", definition: "Bytes of blocks that were live when the window ended." },
  { metric: "peak", label: "Peak", definition: "Largest sum of live bytes inside the window." },
  {
    metric: "leaked",
    label: "Leaked",
    definition: "Bytes of blocks allocated in the window and never freed.",
  },
  {
    metric: "temporary",
    label: "Temporary",
    definition: "Bytes of blocks allocated in the window and freed at once.",
  },
] as const;

export function WindowFacts() {
  const { subject, search } = usePage();
  const { window, filters } = useRequest();
  const answers = useQueries({
    queries: ASKED.map(({ metric }) =>
      documentQuery(subject, "functions", { ...window, ...filters, metric, limit: 1 }),
    ),
  });
  const title = [
    ...(search.filters ? ["What passes the filters"] : []),
    ...(effectiveWindow(search) ? ["In the chosen window"] : []),
  ]
    .join(", ")
    .replace(", In", ", in");
  return (
    <section aria-labelledby="window-facts">
      <h2 id="window-facts">{title}</h2>
      <dl className="facts">
        {ASKED.map(({ metric, label, definition }, i) => {
          const answer = answers[i]?.data;
          const total = answer?.total;
          return (
            <div key={metric} className="fact" data-fact={`window ${metric}`}>
              <dt>
                <Term definition={definition}>{label}</Term>
              </dt>
              <dd>
                <span className="fact-value" title={total === undefined ? undefined : formatExact(total, "bytes")}>
                  {total === undefined
                    ? "…"
                    : metric === "grown"
                      ? formatSigned(total, "bytes")
                      : formatValue(total, "bytes")}
                </span>
              </dd>
            </div>
          );
        })}
      </dl>
    </section>
  );
}
