// One site: its own time series, sizes, lifetimes, who frees it, and its stack.
import { useQuery } from "@tanstack/react-query";
import { useMemo, useRef } from "react";
import { siteQuery } from "../../api/queries.ts";
import type { Site } from "../../api/types.ts";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatExact,
  formatValue,
  plural,
  sentence,
} from "../../lib/format.ts";
import { location, shortName } from "../../lib/names.ts";
import { plainTypes } from "../../lib/plain-types.ts";
import { Button } from "../../ui/controls.tsx";
import { Histogram } from "../../ui/histogram.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { Stack } from "../../ui/stack.tsx";
import { Answer } from "../../ui/states.tsx";
import { Term } from "../../ui/term.tsx";
import { type Curve, TimeChart } from "../../ui/time-chart.tsx";
import { useWidth } from "../../ui/use-size.ts";
import { VerdictBadge } from "../../ui/verdict.tsx";
import { freeingThread } from "./freeing-thread.ts";
import "./site-page.css";

export function SitePage({ site }: { site: string }) {
  const { subject } = usePage();
  const request = useRequest();
  const query = useQuery(siteQuery(subject, site, { ...request.window, ...request.filters, points: 400 }));
  return (
    <Answer query={query} what="the site">
      {(data) => <Loaded site={data} />}
    </Answer>
  );
}

function Loaded({ site }: { site: Site }) {
  const { go } = usePage();
  const { row } = site;
  const name = row.function ?? row.offset ?? row.id;
  return (
    <div className="site-page">
      <div className="view-bar">
        <Button quiet onClick={() => go({ site: undefined })}>
          ‹ All sites
        </Button>
        <h2 className="mono">{shortName(plainTypes(name), 120)}</h2>
        <span className="muted">{[location(row.file, row.line), row.module].filter(Boolean).join(" · ")}</span>
        <span className="spring" />
        <Button onClick={() => go({ site: row.id }, { view: "allocations" })}>Its allocations</Button>
      </div>
      <div className="site-columns">
        <section>
          <p>
            <VerdictBadge verdict={site.verdict} /> {sentence(site.verdict.why)}
          </p>
          <Amounts site={site} />
          <h3>Live bytes of this site</h3>
          <Curves site={site} />
          <div className="two">
            <Histogram data={site.sizes} label="Sizes" formatClass={formatBytes} />
            <Histogram data={site.lifetimes} label="Lifetimes" formatClass={formatDuration} />
          </div>
          <Lifetimes site={site} />
          <FreedBy site={site} />
        </section>
        <section>
          <Stack stack={site.stack} label="Allocated by, innermost first" />
        </section>
      </div>
    </div>
  );
}

const AMOUNTS = [
  ["allocated", "Allocated", "Allocated in the window."],
  ["freed", "Freed", "Freed in the window."],
  ["live", "Live", "Live at the end of the window."],
  ["leaked", "Leaked", "Allocated in the window and never freed."],
  ["at_peak", "At peak", "Live when live bytes were highest; under a filter, when its own were."],
  ["temporary", "Temporary", "Allocated in the window and freed again at once."],
] as const;

function Amounts({ site }: { site: Site }) {
  return (
    <dl className="facts">
      {AMOUNTS.map(([key, label, definition]) => (
        <div key={key} className="fact">
          <dt>
            <Term definition={definition}>{label}</Term>
          </dt>
          <dd>
            <span className="fact-value" title={formatExact(site.row[key].bytes, "bytes")}>
              {formatValue(site.row[key].bytes, "bytes")}
            </span>
            <span className="fact-note">{plural(site.row[key].count, "block")}</span>
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Curves({ site }: { site: Site }) {
  const host = useRef<HTMLDivElement>(null);
  const width = useWidth(host);
  const { timeline } = site;
  const t = useMemo(() => [...timeline.t_ns, timeline.to_ns], [timeline]);
  const curves = useMemo(() => {
    const live = timeline.series.find((series) => series.name === "live_bytes");
    const out: Curve[] = [];
    if (live) out.push({ values: [...live.max, live.last.at(-1) ?? null], color: "--live", look: "area" });
    return out;
  }, [timeline]);
  return (
    <div ref={host} className="site-curve">
      <TimeChart
        t={t}
        curves={curves}
        shown={{ from: timeline.from_ns, to: timeline.to_ns }}
        width={width}
        height={120}
        unit="bytes"
        withTimeAxis
      />
    </div>
  );
}

function Lifetimes({ site }: { site: Site }) {
  const quantiles = site.lifetime_quantiles;
  const cells = [
    ["shortest", quantiles.min_ns],
    ["10%", quantiles.p10_ns],
    ["median", quantiles.p50_ns],
    ["90%", quantiles.p90_ns],
    ["longest", quantiles.max_ns],
  ] as const;
  return (
    <p className="quantiles">
      <Term definition="Lifetimes of the blocks allocated in the window. Blocks that are still live count until the end of the recording.">
        Lifetimes
      </Term>
      {cells.map(([label, ns]) => (
        <span key={label}>
          <span className="muted">{label}</span> {formatDuration(ns)}
        </span>
      ))}
      {quantiles.censored > 0 && <span className="muted">{formatCount(quantiles.censored)} had not ended</span>}
    </p>
  );
}

function FreedBy({ site }: { site: Site }) {
  if (site.freed_by.length === 0) return <p className="muted">No block of this site was freed in the window.</p>;
  return (
    <>
      <h3>Freed by</h3>
      <ul className="freed-by">
        {site.freed_by.map((free, i) => (
          <li key={i}>
            <div>
              <b title={formatExact(free.amount.bytes, "bytes")}>{formatBytes(free.amount.bytes)}</b> in{" "}
              {plural(free.amount.count, "block")}, {freeingThread(free.amount.count, free.same_thread.count)}
            </div>
            <Stack stack={free.stack} label="Freed by, innermost first" />
          </li>
        ))}
      </ul>
    </>
  );
}
