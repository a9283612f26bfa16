// How good the figures are, on every view: names, stacks, and what the program waited for the recorder.
import { formatBytes, formatCount, formatDuration, formatPercent, plural } from "../lib/format.ts";
import { shortWait, waitOf } from "../lib/waiting.ts";
import { usePage } from "../ui/page.ts";
import { useUnnamed } from "./use-unnamed.ts";
import { ViewLink } from "./view-link.tsx";

/** Parts from here on are shown as a warning; a larger part without names has a bar of its own. */
const WORTH = 0.01;

export function QualityPill() {
  const { info } = usePage();
  const unnamed = useUnnamed();
  if (!info) return null;
  const { recorder, events, process } = info;
  const stacks = recorder.stacks?.total ?? events.alloc + events.realloc + events.free;
  const waited = recorder.wait_ns / Math.max(1, process.duration_ns);
  const cut = recorder.truncated_stacks;
  const isWorse = (unnamed?.part ?? 0) >= WORTH || cut > WORTH * stacks || waited >= WORTH;
  const shown = [
    unnamed === undefined ? undefined : unnamed.part === 0 ? "all named" : `${formatPercent(unnamed.part)} unnamed`,
    cut > 0 ? `${formatPercent(cut / Math.max(1, stacks))} of stacks cut` : undefined,
    shortWait(waited),
  ];
  const all = [
    unnamed && `${formatPercent(unnamed.part)} of the peak's bytes are in functions without names`,
    cut > 0
      ? `${formatCount(cut)} of ${plural(stacks, "backtrace")} were cut short`
      : `none of ${plural(stacks, "backtrace")} was cut short`,
    recorder.guessed_stacks > 0 && `${plural(recorder.guessed_stacks, "backtrace")} completed by heuristics`,
    `the program's threads waited ${formatDuration(recorder.wait_ns)} for the recorder, ${waitOf(waited)}`,
    `the recorder's threads ran ${formatDuration(recorder.background_cpu_ns)} and it took at most ${formatBytes(recorder.memory_bytes)}`,
  ];
  return (
    <ViewLink
      view="recording"
      className="pill quality"
      kind={isWorse ? "warn" : "done"}
      title={`${all.filter(Boolean).join(";\n")}. The Recording view has all of it.`}
    >
      {shown.filter(Boolean).join(" · ")}
    </ViewLink>
  );
}
