// The first view: what was recorded, the numbers people quote, what to read first.
import { useQuery } from "@tanstack/react-query";
import { documentQuery, freshQuery } from "../../api/queries.ts";
import type { Info, LeakFunction } from "../../api/types.ts";
import {
  formatBytes,
  formatCount,
  formatExact,
  formatInstant,
  formatStart,
  formatValue,
  plural,
} from "../../lib/format.ts";
import { identityOf, patternOf } from "../../lib/identity.ts";
import { bareName, location } from "../../lib/names.ts";
import { effectiveWindow } from "../../lib/search-params.ts";
import { useKept } from "../../ui/kept.ts";
import { usePage, useRequest } from "../../ui/page.ts";
import { MatchCount, useSearch } from "../../ui/search.tsx";
import { Sparkline } from "../../ui/sparkline.tsx";
import { Empty } from "../../ui/states.tsx";
import { Term } from "../../ui/term.tsx";
import { useWindowHeight } from "../../ui/use-size.ts";
import { VerdictBadge } from "../../ui/verdict.tsx";
import { type Fact, factsOf } from "./facts.ts";
import { type Finding, findingsOf, growingSubject, isTornDown, lateMoment } from "./findings.ts";
import { Holders } from "./holders.tsx";
import { LayersPanel } from "./layers-panel.tsx";
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
  const { info, subject, running, search, report } = usePage();
  const request = useRequest();
  const top = useWindowHeight() >= TALL ? TOP.tall : TOP.low;
  const find = useSearch();
  const windowed = useKept(
    useQuery(
      documentQuery(subject, "functions", {
        ...request.metric,
        ...request.filters,
        by: "program",
        limit: top,
        search: find.asked,
      }),
    ),
  );
  // What is drawn at once is asked for at once; what takes a look at every site's history comes after it.
  const enabled = windowed.data !== undefined || windowed.error !== null;
  const peak = useKept(
    useQuery({
      ...documentQuery(subject, "functions", { metric: "peak", by: "program", limit: top }),
      enabled,
    }),
  );
  const leaks = useKept(
    useQuery({
      ...documentQuery(subject, "leaks", {
        ...request.suppressions,
        limit: 20,
        // The server has an answer to these two numbers ready. The search goes through all functions.
        functions: find.active ? 10_000 : 20,
      }),
      enabled,
    }),
  );
  const grower = growingSubject(leaks.data);
  const growers = useQuery({
    ...documentQuery(subject, "functions", {
      metric: "leaked",
      by: "thread",
      limit: 1,
      focus: grower === undefined ? undefined : patternOf(grower),
    }),
    enabled: grower !== undefined && !report && (info?.threads ?? 0) > 1,
  });
  const temporary = useKept(
    useQuery({
      ...documentQuery(subject, "functions", { metric: "temporary", unit: "count", by: "program", limit: 3 }),
      enabled,
    }),
  );
  const threads = useKept(useQuery({ ...documentQuery(subject, "threads", {}), enabled }));
  const end = info?.process.duration_ns ?? 0;
  const late = lateMoment(end);
  const hasLooks = enabled && info?.peak_rss != null;
  const lateMemory = useQuery({
    ...documentQuery(subject, "memory", { at: late, before: true, limit: 1 }),
    enabled: hasLooks && !report && !running,
  });
  const torn = isTornDown(lateMemory.data, info?.leaked.bytes ?? 0);
  const endMemory = useQuery({
    ...documentQuery(subject, "memory", report ? {} : { at: end, limit: 1 }),
    enabled: hasLooks && !torn && (report !== undefined || running || lateMemory.data !== undefined),
  });
  const memory = torn ? lateMemory : endMemory;
  const moment = torn ? { at: late, before: true } : { at: end };
  const pins = useQuery({
    ...documentQuery(subject, "pins", report ? { by: "function" } : { ...moment, by: "function", limit: 20 }),
    enabled: memory.data !== undefined,
  });
  const replay = useQuery({ ...freshQuery(subject, "replay"), enabled });
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
  const asked = [leaks, peak, temporary, threads];
  const looking = asked.some((query) => query.isPending);
  const failed = asked.find((query) => query.data === undefined && query.error !== null);
  const part = effectiveWindow(search) !== undefined || search.filters !== undefined;
  const whole = part && <span className="muted">of the whole recording</span>;
  const allFindings = findingsOf({
    info,
    leaks: leaks.data,
    growers: growers.data,
    peak: peak.data,
    temporary: temporary.data,
    threads: threads.data,
    memory: memory.data,
    pins: pins.data,
    replay: replay.data,
  });
  const findings = allFindings.filter(({ figure, title, text }) => find.hit(`${figure} ${title}`, text));
  const leaking = (leaks.data?.functions ?? []).filter((row) => find.hit(row.function, row.file, row.module));
  return (
    <div className="overview">
      <section aria-labelledby="key-figures">
        <h2 id="key-figures" className={part ? undefined : "visually-hidden"}>
          Key figures {whole}
        </h2>
        <dl className="facts">
          {factsOf(info, leaks.data, running).map((fact) => (
            <FactTile key={fact.id} fact={fact} />
          ))}
        </dl>
      </section>
      {part && !report && <WindowFacts />}
      <div className="overview-columns">
        <section aria-labelledby="findings">
          <h2 id="findings">Worth reading first {whole}</h2>
          <MatchCount search={find} shown={findings.length} of={allFindings.length} what="findings" />
          <ol className="findings">
            {findings.map((finding) => (
              <FindingItem key={finding.id} finding={finding} />
            ))}
            {findings.length === 0 && (
              <li className="muted">
                {looking
                  ? "Looking…"
                  : failed
                    ? `Not known: ${failed.error?.message}`
                    : find.active
                      ? "No finding matches the search."
                      : "Nothing stands out."}
              </li>
            )}
          </ol>
        </section>
        <Holders functions={windowed.data} />
        <section aria-labelledby="top-leaks">
          <h2 id="top-leaks">
            {running ? "Live now, by function" : "Never freed, by function"}{" "}
            <span className="muted">{leaks.data ? formatValue(leaks.data.leaked.bytes, "bytes") : ""}</span> {whole}
          </h2>
          <MatchCount search={find} shown={leaking.length} of={leaks.data?.functions?.length ?? 0} what="functions" />
          <table className="small-table leak-lines">
            <thead>
              <tr>
                <th className="numeric">Bytes</th>
                <th className="numeric">Blocks</th>
                <th>Over time</th>
                <th>Verdict</th>
                <th>Allocated by</th>
              </tr>
            </thead>
            <tbody>
              {leaking.slice(0, top).map((row) => (
                <LeakLine key={`${row.function} ${row.module} ${row.file}`} row={row} />
              ))}
              {!leaks.data && (
                <tr>
                  <td colSpan={5} className="muted">
                    {leaks.error ? `Not known: ${leaks.error.message}` : "Looking at every site's history…"}
                  </td>
                </tr>
              )}
              {leaks.data?.sites.length === 0 && (
                <tr>
                  <td colSpan={5} className="muted">
                    {leaks.data.suppressed.count > 0
                      ? "Nothing besides the suppressed leaks."
                      : "Everything was freed."}
                  </td>
                </tr>
              )}
            </tbody>
          </table>
        </section>
        <LayersPanel wait={!enabled} />
        <MemoryPanel info={info} wait={windowed.data === undefined} />
        <section aria-labelledby="what">
          <h2 id="what">What was recorded</h2>
          <Process info={info} />
        </section>
      </div>
    </div>
  );
}

function FindingItem({ finding }: { finding: Finding }) {
  return (
    <li data-tone={finding.tone}>
      <div className="finding-head">
        <PageLink patch={finding.search} view={finding.view}>
          <span className="finding-figure">{finding.figure}</span> {finding.title}
        </PageLink>
        {finding.curve && <Sparkline values={finding.curve} />}
      </div>
      <p>{finding.text}</p>
      {finding.why && (
        <details className="why">
          <summary>Why</summary>
          <p>{finding.why}</p>
        </details>
      )}
    </li>
  );
}

function LeakLine({ row }: { row: LeakFunction }) {
  const subject = { name: row.function, module: row.module, file: row.file };
  return (
    <LitLine names={[row.function]}>
      <td className="numeric" title={formatExact(row.bytes, "bytes")}>
        {formatValue(row.bytes, "bytes")}
      </td>
      <td className="numeric leak-blocks">{formatCount(row.count)}</td>
      <td>
        <Sparkline values={row.curve} width={72} />
      </td>
      <td>
        <VerdictBadge verdict={row.verdict} />
      </td>
      <td className="leak-function">
        <PageLink patch={{ selected: identityOf(subject), site: undefined }} view="leaks">
          <span className="mono" title={row.function}>
            {bareName(row.function, 60)}
          </span>
        </PageLink>{" "}
        <span className="muted">
          {location(row.file, row.line) ?? row.module}
          {row.total_sites > 1 && `, ${plural(row.total_sites, "site")}`}
        </span>
      </td>
    </LitLine>
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
        {process.pid !== 0 && (
          <div>
            <dt>Process</dt>
            <dd>
              {process.pid}, child of {process.parent_pid}
            </dd>
          </div>
        )}
        {process.started_at && (
          <div>
            <dt>Started</dt>
            <dd>{formatStart(process.started_at)}</dd>
          </div>
        )}
        {info.inherited && (
          <div>
            <dt>Inherited</dt>
            <dd>
              {formatBytes(info.inherited.bytes)} in {plural(info.inherited.count, "block")} when it was forked, which
              the allocations count
            </dd>
          </div>
        )}
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
            <li key={`${remark.t_ns} ${remark.topic} ${remark.text}`}>
              <span className="muted">{formatInstant(remark.t_ns)}</span> {remark.text}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
