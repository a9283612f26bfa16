// Where resident memory is: the ledger at one moment, as in the Memory view.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Info } from "../../api/types.ts";
import { formatBytes, formatInstant } from "../../lib/format.ts";
import { effectiveWindow } from "../../lib/search-params.ts";
import { LedgerBar, LedgerTable } from "../../ui/ledger.tsx";
import { usePage } from "../../ui/page.ts";
import { PageLink } from "./page-link.tsx";

export function MemoryPanel({ info, wait }: { info: Info; wait: boolean }) {
  const { search, subject, report } = usePage();
  const [lit, setLit] = useState<string | undefined>();
  const window = effectiveWindow(search);
  const peak = info.peak_rss;
  const at = search.at ?? window?.to ?? peak?.at_ns ?? 0;
  // A report has one moment.
  const asked = report ? {} : { at, limit: 1 };
  const memory = useQuery({ ...documentQuery(subject, "memory", asked), enabled: !!peak && !wait });
  if (!peak) return null;
  const when =
    report && memory.data && memory.data.at_ns !== peak.at_ns
      ? "at the end of the report's window"
      : search.at !== undefined
        ? "at the chosen instant"
        : window
          ? "at the end of the window"
          : memory.data?.look_ns != null && memory.data.look_ns !== peak.at_ns
            ? "by the look most like its highest sample"
            : "when it was highest";
  const { data } = memory;
  return (
    <section aria-labelledby="resident" data-panel="memory">
      <h2 id="resident">
        <PageLink view="memory" patch={{}}>
          Where resident memory is
        </PageLink>{" "}
        <span className="muted">
          {when}, {formatInstant(data?.look_ns ?? data?.at_ns ?? at)}
        </span>
      </h2>
      {memory.error ? (
        <p className="muted">Not known: {memory.error.message}</p>
      ) : data?.rows ? (
        <>
          <LedgerBar ledger={data} lit={lit} light={setLit} />
          <LedgerTable ledger={data} lit={lit} light={setLit} />
          <p className="muted">{data.why}</p>
          {!window && search.at === undefined && peak.bytes > 1.01 * (data.rss_bytes ?? 0) && (
            <p className="muted">
              A sample at {formatInstant(peak.at_ns)} was higher, {formatBytes(peak.bytes)}; the recorder looked at the
              pages before and after it.
            </p>
          )}
        </>
      ) : (
        <p className="muted">{data ? "Memory was not sampled before this moment." : "Looking at the pages…"}</p>
      )}
    </section>
  );
}
