// The recordings of this server; with only one, straight to it.
import { useQuery } from "@tanstack/react-query";
import { Link, Navigate } from "@tanstack/react-router";
import { useState } from "react";
import { documentQuery, recordingsQuery } from "../api/queries.ts";
import type { Info, RecordingSummary } from "../api/types.ts";
import { formatBytes, formatCount, formatDuration, formatPercent, formatRate, formatStart } from "../lib/format.ts";
import { fileName } from "../lib/names.ts";
import { recordingText } from "../lib/recording.ts";
import { Select } from "../ui/controls.tsx";
import { Logo } from "../ui/logo.tsx";
import { Answer, Empty } from "../ui/states.tsx";
import { endText } from "./end-text.ts";
import "./lobby.css";

export function Lobby() {
  const query = useQuery(recordingsQuery());
  return (
    <main className="lobby">
      <h1 className="brand">
        <Logo />
        heaptrace
      </h1>
      <Answer query={query} what="the list of recordings">
        {({ recordings }) => {
          const only = recordings.length === 1 ? recordings[0] : undefined;
          if (only)
            return (
              <Navigate
                to="/r/$recording/$view"
                params={{ recording: only.id, view: "overview" }}
                search={{}}
                replace
              />
            );
          if (recordings.length === 0) {
            return (
              <Empty title="This server serves no recording">
                Make one: <code>heaptrace run -- your-program</code>, then <code>heaptrace server memory-*.dat</code>.
              </Empty>
            );
          }
          const usable = recordings.filter((recording) => recording.state === "ready" || recording.state === "running");
          const [before, after] = usable;
          return (
            <>
              {before && after && <Comparison usable={usable} />}
              <table className="small-table recordings">
                <thead>
                  <tr>
                    <th scope="col" className="recording-program">
                      Program
                    </th>
                    <th scope="col" className="recording-file">
                      Recording
                    </th>
                    <th scope="col" className="recording-start">
                      Started
                    </th>
                    <th scope="col">State</th>
                    <th scope="col" className="numeric">
                      Runtime
                    </th>
                    <th scope="col" className="numeric recording-events">
                      Events
                    </th>
                    <th scope="col" className="numeric">
                      Peak
                    </th>
                    <th scope="col" className="numeric">
                      Leaked
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {recordings.map((recording) => (
                    <Row key={recording.id} recording={recording} />
                  ))}
                </tbody>
              </table>
            </>
          );
        }}
      </Answer>
    </main>
  );
}

/** One recording with the numbers that tell it from the others. */
function Row({ recording }: { recording: RecordingSummary }) {
  const usable = recording.state === "ready" || recording.state === "running";
  const subject = { recording: recording.id, revision: recording.progress.events };
  const { data: info } = useQuery({ ...documentQuery(subject, ""), enabled: usable });
  return (
    <tr>
      <td className="recording-program">
        <Link
          className="recording-title"
          to="/r/$recording/$view"
          params={{ recording: recording.id, view: "overview" }}
          search={{}}
        >
          {recording.title || recording.name}
        </Link>
        {info && info.process.arguments.length > 1 && (
          <div className="command mono muted" title={info.process.arguments.join(" ")}>
            {[fileName(info.process.arguments[0] ?? ""), ...info.process.arguments.slice(1)].join(" ")}
          </div>
        )}
      </td>
      <td className="recording-file mono muted" title={recording.name}>
        {recording.name}
      </td>
      <td className="recording-start muted nowrap">{recording.started_at && formatStart(recording.started_at)}</td>
      {info ? (
        <>
          <td className="recording-state">
            <EndText info={info} />
            {recording.file !== "as_read" && (
              <div className="warn nowrap">{recording.file === "removed" ? "file removed" : "file replaced"}</div>
            )}
          </td>
          <td className="numeric" data-head="Runtime">
            {formatDuration(info.process.duration_ns)}
          </td>
          <td className="numeric recording-events">{formatCount(eventsOf(info))}</td>
          <td className="numeric" data-head="Peak">
            {formatBytes(info.peak.bytes)}
          </td>
          <td className="numeric" data-head="Leaked">
            {info.end === "running" ? "" : formatBytes(info.leaked.bytes)}
          </td>
        </>
      ) : (
        <td colSpan={5} className="recording-state">
          <StateText recording={recording} />
        </td>
      )}
    </tr>
  );
}

function eventsOf({ events }: Info): number {
  return events.alloc + events.free + events.realloc + events.map + events.unmap + events.remap;
}

function EndText({ info }: { info: Info }) {
  const kind = info.end === "running" ? "good" : info.complete ? "muted" : "bad";
  return <span className={kind}>{endText(info)}</span>;
}

/** Two of the recordings, and the way to their comparison. */
function Comparison({ usable }: { usable: readonly RecordingSummary[] }) {
  const [chosen, setChosen] = useState<{ before?: string; after?: string }>({});
  const before = usable.find((known) => known.id === chosen.before) ?? usable[0];
  const others = usable.filter((known) => known !== before);
  const after = others.find((known) => known.id === chosen.after) ?? others[0];
  if (!before || !after) return null;
  const choices = (all: readonly RecordingSummary[]) =>
    all.map((known) => ({ value: known.id, label: `${known.name} · ${recordingText(known)}` }));
  return (
    <p className="lobby-compare">
      <Select
        label="Compare"
        value={before.id}
        choices={choices(usable)}
        onChange={(id) => setChosen({ before: id, after: after.id === id ? before.id : after.id })}
      />
      <Select
        label="with"
        value={after.id}
        choices={choices(others)}
        onChange={(id) => setChosen({ before: before.id, after: id })}
      />
      <Link
        className="button"
        to="/r/$recording/$view"
        params={{ recording: before.id, view: "compare" }}
        search={{ other: after.id, graph: true, metric: "peak" }}
        aria-label={`Compare ${before.name} with ${after.name}`}
      >
        Compare
      </Link>
    </p>
  );
}

export function StateText({ recording }: { recording: RecordingSummary }) {
  const { progress } = recording;
  switch (recording.state) {
    case "failed":
      return <span className="bad">cannot be opened: {recording.error ?? "no reason was given"}</span>;
    case "cancelled":
      return <span className="muted">indexing was cancelled; open it to start again</span>;
    case "running":
      return <span className="good">the program is running</span>;
    case "indexing":
      return (
        <span className="muted">
          reading, {formatPercent(progress.done_bytes / Math.max(1, progress.total_bytes))} of{" "}
          {formatBytes(progress.total_bytes)}
          {progress.events_per_second > 0 && `, ${formatRate(progress.events_per_second)}`.replace("/s", " events/s")}
        </span>
      );
    case "ready":
      return <span className="muted">complete</span>;
  }
}
