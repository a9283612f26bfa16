// The recorder about itself: what may be wrong with the figures, in words.
import type { Info } from "../../api/types.ts";
import { formatCount, formatPercent } from "../../lib/format.ts";

export interface AuditEntry {
  id: string;
  label: string;
  value: string;
  definition: string;
  tone: "good" | "warn" | "bad";
}

export function auditOf(info: Info): AuditEntry[] {
  const { recorder, exactness, events } = info;
  const stacks = recorder.stacks?.total ?? events.alloc + events.realloc + events.free;
  const frees = events.free + events.realloc;
  const all = events.alloc + events.free + events.realloc + events.map + events.unmap + events.remap + events.brk;
  // Each count is a part of what it was counted among; blocks of the file are no part of the events.
  const base: Record<string, number> = {
    lost: all + events.lost,
    unmatched: frees,
    reordered: all,
    truncated: stacks,
    heuristic: stacks,
    slow: stacks,
  };
  const count = (id: string, label: string, value: number, definition: string, tone: "warn" | "bad"): AuditEntry => ({
    id,
    label,
    value:
      value === 0
        ? "none"
        : `${formatCount(value)}${(base[id] ?? 0) > 0 ? ` (${formatPercent(value / (base[id] ?? 1))})` : ""}`,
    definition,
    tone: value === 0 ? "good" : tone,
  });
  return [
    {
      id: "complete",
      label: "Complete",
      value: info.complete
        ? "yes"
        : info.end === "running"
          ? "the program runs"
          : `no, end: ${info.end.replace("_", " ")}`,
      definition: "The recording has ended in an orderly way and nothing is known to be missing.",
      tone: info.complete || info.end === "running" ? "good" : "warn",
    },
    count(
      "lost",
      "Lost events",
      events.lost,
      "Events known to be missing, because dropping was chosen or blocks of the file are damaged.",
      "bad",
    ),
    count(
      "damaged",
      "Damaged blocks",
      exactness.damaged_blocks,
      "Blocks of the file that are missing or whose checksum is wrong. Each costs its own events only.",
      "bad",
    ),
    count(
      "unmatched",
      "Unmatched frees",
      recorder.unmatched_frees,
      "Frees of blocks whose allocation was not recorded: allocated before recording began, or lost.",
      "warn",
    ),
    {
      ...count(
        "reordered",
        "Repairs of the order",
        recorder.order_repairs ?? 0,
        "Blocks that went from one thread to another with stamps in the wrong order. The order was corrected.",
        "warn",
      ),
      tone: "good",
    },
    count(
      "truncated",
      "Truncated stacks",
      recorder.truncated_stacks,
      "Backtraces that were cut short: their outer callers are missing.",
      "warn",
    ),
    count(
      "heuristic",
      "Heuristic stacks",
      recorder.guessed_stacks,
      "Backtraces that were completed by following frame pointers, because unwind tables were missing.",
      "warn",
    ),
    {
      ...count(
        "slow",
        "Slow stacks",
        recorder.slow_stacks,
        "Backtraces that the general unwinder took. They are exact, only slower.",
        "warn",
      ),
      tone: "good",
    },
  ];
}
