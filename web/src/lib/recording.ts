// What a recording is called in a list of them, and how it ended.
import type { Info, RecordingSummary } from "../api/types.ts";
import { formatDuration, formatStart } from "./format.ts";

/** Recordings of one program differ by when it ran, and for how long. */
export function recordingText({ title, name, started_at, duration_ns }: RecordingSummary): string {
  const when = started_at ? ` · ${formatStart(started_at).slice(5, -4)}` : "";
  const long = duration_ns ? ` · ${formatDuration(duration_ns)}` : "";
  return `${title || name}${when}${long}`;
}

/** Ends of a recording at which its program was not through: what is live there is no leak for that alone. */
const CUT_SHORT: Partial<Record<Info["end"], string>> = {
  running: "so far",
  killed: "when it was killed",
  stopped: "when recording stopped",
  detached: "at the detach",
  disk_full: "when the disk was full",
  unknown: "where the file ends",
};

/** When a recording ended, if the program may have gone on. */
export function cutShortText(info: Info): string | undefined {
  return CUT_SHORT[info.end];
}
