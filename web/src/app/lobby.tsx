// The recordings of this server; with only one, straight to it.
import { useQuery } from "@tanstack/react-query";
import { Link, Navigate } from "@tanstack/react-router";
import { recordingsQuery } from "../api/queries.ts";
import type { RecordingSummary } from "../api/types.ts";
import { formatBytes, formatPercent, formatRate } from "../lib/format.ts";
import { Answer, Empty } from "../ui/states.tsx";

export function Lobby() {
  const query = useQuery(recordingsQuery());
  return (
    <main className="lobby">
      <h1>heaptrace</h1>
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
              {before && after && usable.length === 2 && (
                <p>
                  <Comparison before={before} after={after} />
                </p>
              )}
              <ul className="recordings">
                {recordings.map((recording) => (
                  <li key={recording.id}>
                    <Link to="/r/$recording/$view" params={{ recording: recording.id, view: "overview" }} search={{}}>
                      {recording.title || recording.name}
                    </Link>
                    <span className="mono muted">{recording.name}</span>
                    <StateText recording={recording} />
                  </li>
                ))}
              </ul>
              {before && usable.length > 2 && (
                <p className="muted">
                  Compare {before.name} with{" "}
                  {usable.slice(1).map((other, i) => (
                    <span key={other.id}>
                      {i > 0 && ", "}
                      <Comparison before={before} after={other} short />
                    </span>
                  ))}
                </p>
              )}
            </>
          );
        }}
      </Answer>
    </main>
  );
}

function Comparison({ before, after, short }: { before: RecordingSummary; after: RecordingSummary; short?: true }) {
  return (
    <Link
      to="/r/$recording/$view"
      params={{ recording: before.id, view: "compare" }}
      search={{ other: after.id, graph: true }}
      aria-label={`Compare ${before.name} with ${after.name}`}
    >
      {short ? after.name : `Compare ${before.name} with ${after.name}`}
    </Link>
  );
}

export function StateText({ recording }: { recording: RecordingSummary }) {
  const { progress } = recording;
  switch (recording.state) {
    case "failed":
      return <span className="bad">cannot be opened: {recording.error ?? "no reason was given"}</span>;
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
