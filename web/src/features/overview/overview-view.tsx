// The first view: what was recorded, the numbers people quote, what to read first.
import { useQuery } from "@tanstack/react-query";
import { documentQuery } from "../../api/queries.ts";
import type { Info } from "../../api/types.ts";
import { formatCount, formatInstant, formatStart, formatValue } from "../../lib/format.ts";
import { shortName } from "../../lib/names.ts";
import { effectiveWindow } from "../../lib/search-params.ts";
import { allocatorName, allocatorPlace, callerName, frameName } from "../../lib/stack.ts";
import { usePage, useRequest } from "../../ui/page.ts";
import { Empty } from "../../ui/states.tsx";
import { Term } from "../../ui/term.tsx";
import { useWindowHeight } from "../../ui/use-size.ts";
import { VerdictBadge } from "../../ui/verdict.tsx";
import { type Fact, factsOf } from "./facts.ts";
import { findingsOf } from "./findings.ts";
import { Holders } from "./holders.tsx";
import { LitLine } from "./lit-line.tsx";
import { MemoryPanel } from "./memory-panel.tsx";
import { PageLink } from "./page-link.tsx";
import { WindowFacts } from "./window-facts.tsx";
import "./overview.css";

/** Rows of the small tables; tall windows have room for more. */
const TOP = { low: 8, tall: 14 } as const;
/** Pixels of a window's height from which it is tall. */
const TALL = 1000;

export function OverviewView() {
  const { info, subject, running, search } = usePage();
  const request = useRequest();
  const top = useWindowHeight() >= TALL ? TOP.tall : TOP.low;
  // Of a program that has ended, what is live says what it leaked; who held its peak is the better first question.
  const held = !running && search.metric === undefined && search.at === undefined ? { metric: "peak" } : {};
  const windowed = useQuery(
    documentQuery(subject, "functions", {
      ...request.metric,
      ...held,
      ...request.filters,
      by: "program",
      limit: top,
    }),
  );
  // What is drawn at once is asked for at once; what takes a look at every site's history comes after it.
  const enabled = windowed.data !== undefined || windowed.error !== null;
  const peak = useQuery({
    ...documentQuery(subject, "functions", { metric: "peak", by: "program", limit: top }),
    enabled,
  });
  const leaks = useQuery({ ...documentQuery(subject, "leaks", { limit: 20 }), enabled });
  const temporary = useQuery({
    ...documentQuery(subject, "functions", { metric: "temporary", unit: "count", by: "program", limit: 3 }),
    enabled,
  });
  const threads = useQuery({ ...documentQuery(subject, "threads", {}), enabled });
  if (!info) return null;
  if (info.allocations.count === 0) {
    return (
      <Empty title="This recording holds no allocation">
        <p>
          The program made none while it was recorded, or recording was off
          {info.captures.length === 0 ? ": no capture was started" : ""}. Check <code>TRACEHOUND_START</code>, and that
          the program is not linked statically.
        </p>
        <p>
          <code>{info.process.arguments.join(" ")}</code>
        </p>
      </Empty>
    );
  }
  const looking = [leaks, peak, temporary, threads].some((query) => query.isPending);
  const part = effectiveWindow(search) !== undefined || search.filters !== undefined;
  const whole = part && <span className="muted">of the whole recording</span>;
  const findings = findingsOf({
    info,
    leaks: leaks.data,
    peak: peak.data,
    temporary: temporary.data,
    threads: threads.data,
  });
  return (
    <div className="overview">
      <section aria-label="Key figures">
        <h2 className="visually-hidden">Key figures</h2>
        <dl className="facts">
          {factsOf(info, leaks.data, running).map((fact) => (
            <FactTile key={fact.id} fact={fact} />
          ))}
        </dl>
      </section>
      {effectiveWindow(search) && <WindowFacts />}
      <div className="overview-columns">
        <section aria-labelledby="findings">
          <h2 id="findings">Worth reading first {whole}</h2>
          <ol className="findings">
            {findings.map((finding) => (
              <li key={finding.id} data-tone={finding.tone}>
                <PageLink patch={finding.search} view={finding.view}>
                  {finding.title}
                </PageLink>
                <p>{finding.text}</p>
              </li>
            ))}
            {findings.length === 0 && <li className="muted">{looking ? "Looking…" : "Nothing stands out."}</li>}
          </ol>
        </section>
        <Holders functions={windowed.data} limit={top} />
        <section aria-labelledby="top-leaks">
          <h2 id="top-leaks">
            {running ? "Live now, by site" : "Never freed, by site"}{" "}
            <span className="muted">{leaks.data ? formatValue(leaks.data.leaked.bytes, "bytes") : ""}</span> {whole}
          </h2>
          <table className="small-table">
            <thead>
              <tr>
                <th className="numeric">Bytes</th>
                <th className="numeric">Blocks</th>
                <th>Verdict</th>
                <th>Allocated by</th>
              </tr>
            </thead>
            <tbody>
              {leaks.data?.sites.slice(0, top).map((site) => (
                <LitLine key={site.id} names={site.stack.map(frameName)}>
                  <td className="numeric">{formatValue(site.bytes, "bytes")}</td>
                  <td className="numeric">{formatCount(site.count)}</td>
                  <td>
                    <VerdictBadge verdict={site.verdict} />
                  </td>
                  <td>
                    <PageLink patch={{ site: site.id }} view="leaks">
                      <span className="mono">{shortName(allocatorName(site.stack, site.id), 60)}</span>
                    </PageLink>{" "}
                    <span className="muted">
                      {callerName(site.stack) && (
                        <span className="mono">← {shortName(callerName(site.stack), 40)} </span>
                      )}
                      {allocatorPlace(site.stack)}
                    </span>
                  </td>
                </LitLine>
              ))}
              {!leaks.data && (
                <tr>
                  <td colSpan={4} className="muted">
                    {leaks.error ? `Not known: ${leaks.error.message}` : "Looking at every site's history…"}
                  </td>
                </tr>
              )}
              {leaks.data?.sites.length === 0 && (
                <tr>
                  <td colSpan={4} className="muted">
                    Everything was freed.
                  </td>
                </tr>
              )}
            </tbody>
          </table>
        </section>
        <MemoryPanel info={info} wait={windowed.data === undefined} />
        <section aria-labelledby="what">
          <h2 id="what">What was recorded</h2>
          <Process info={info} />
        </section>
      </div>
    </div>
  );
}

function FactTile({ fact }: { fact: Fact }) {
  const value = (
    <span className="fact-value" data-tone={fact.tone} title={fact.exact}>
      {fact.value}
    </span>
  );
  return (
    <div className="fact" data-fact={fact.id}>
      <dt>
        <Term definition={`${fact.definition}\n${fact.exact}`}>{fact.label}</Term>
      </dt>
      <dd>
        {fact.link ? (
          <PageLink patch={fact.link.search} view={fact.link.view}>
            {value}
          </PageLink>
        ) : (
          value
        )}
        {fact.note && <span className="fact-note">{fact.note}</span>}
      </dd>
    </div>
  );
}

function Process({ info }: { info: Info }) {
  const { process } = info;
  return (
    <>
      <dl className="facts-list">
        <div>
          <dt>Command</dt>
          <dd className="mono wrap">
            {process.arguments.length > 0 ? process.arguments.join(" ") : process.executable}
          </dd>
        </div>
        <div>
          <dt>Executable</dt>
          <dd className="mono wrap">{process.executable}</dd>
        </div>
        <div>
          <dt>Process</dt>
          <dd>
            {process.pid}, child of {process.parent_pid}
          </dd>
        </div>
        <div>
          <dt>Started</dt>
          <dd>{formatStart(process.started_at)}</dd>
        </div>
        <div>
          <dt>Events</dt>
          <dd>
            {formatCount(info.events.alloc)} allocations, {formatCount(info.events.free)} frees,{" "}
            {formatCount(info.events.realloc)} reallocs
          </dd>
        </div>
      </dl>
      {info.remarks.length > 0 && (
        <ul className="remarks">
          {info.remarks.map((remark) => (
            <li key={`${remark.t_ns} ${remark.topic}`}>
              <span className="muted">{formatInstant(remark.t_ns)}</span> {remark.text}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
