// What a recording is called in a list of them.
import type { RecordingSummary } from "../api/types.ts";
import { formatDuration, formatStart } from "./format.ts";

/** Recordings of one program differ by when it ran, and for how long. */
export function recordingText({ title, name, started_at, duration_ns }: RecordingSummary): string {
  const when = started_at ? ` · ${formatStart(started_at).slice(5, -4)}` : "";
  const long = duration_ns ? ` · ${formatDuration(duration_ns)}` : "";
  return `${title || name}${when}${long}`;
}
