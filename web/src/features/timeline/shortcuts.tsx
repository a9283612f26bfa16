// One click away: the peak, the end, two marks to compare, and the tracks on demand.
import { Button } from "../../ui/controls.tsx";
import { useMetric, usePage } from "../../ui/page.ts";
import { AddNote } from "./add-note.tsx";

export function Shortcuts({ peakAt }: { peakAt: number | undefined }) {
  const { search, go, endNs, report, view } = usePage();
  const metric = useMetric();
  const toggleTrack = (track: "count" | "threads") => {
    const now = search.tracks ?? [];
    const next = now.includes(track) ? now.filter((name) => name !== track) : [...now, track];
    go({ tracks: next.length > 0 ? next : undefined }, { replace: true });
  };
  const until = search.at === undefined ? peakAt || endNs : endNs;
  return (
    <>
      <Button
        on={metric === "peak"}
        title="What was in memory when live bytes were highest in the window (p)"
        onClick={() => go({ metric: "peak", at: undefined })}
      >
        Peak
      </Button>
      <Button
        on={metric === "live" && search.at === undefined}
        title="What was in memory at the end of the window (e)"
        onClick={() => go({ metric: "live", at: undefined })}
      >
        End
      </Button>
      {!report && (
        <Button
          quiet
          title="Compare two instants: A and B at both ends of the window, or from the chosen instant to the end; otherwise half way to the peak, and the peak"
          on={search.a !== undefined}
          onClick={() =>
            search.a !== undefined
              ? go({ a: undefined, b: undefined })
              : go({
                  a:
                    search.window?.from ??
                    (search.at !== undefined && search.at < endNs ? search.at : Math.floor(until / 2)),
                  b: search.window?.to ?? until,
                })
          }
        >
          A/B
        </Button>
      )}
      {search.a !== undefined && view !== "compare" && (
        <Button title="What changed from A to B" onClick={() => go({}, { view: "compare" })}>
          Compare
        </Button>
      )}
      {!report && <AddNote />}
      <span className="muted side-label">Tracks</span>
      <Button
        quiet
        title="Track of live blocks"
        on={search.tracks?.includes("count") ?? false}
        onClick={() => toggleTrack("count")}
      >
        Blocks
      </Button>
      <Button
        quiet
        title="A track of allocations a second for each thread"
        on={search.tracks?.includes("threads") ?? false}
        onClick={() => toggleTrack("threads")}
      >
        Threads
      </Button>
    </>
  );
}
