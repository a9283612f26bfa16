// What the history of a site says, as a word with its colour; the reason is text beside it.
import type { Verdict, VerdictKind } from "../api/types.ts";
import { formatBytes, formatPercent } from "../lib/format.ts";
import { Term } from "./term.tsx";

export const VERDICT_TEXT: Record<VerdictKind, { label: string; definition: string }> = {
  growing: {
    label: "growing",
    definition: "Live bytes of this site keep growing: a leak, unless the program is still filling a cache.",
  },
  bounded: {
    label: "bounded",
    definition: "Live bytes grew to a level and stayed there: a cache or a pool, most likely.",
  },
  one_time: {
    label: "one time",
    definition: "Allocated once, at one moment, and kept: usually a global that lives as long as the program.",
  },
  unclear: { label: "unclear", definition: "There is too little history to say." },
};

export function VerdictBadge({ verdict }: { verdict: Verdict }) {
  const text = VERDICT_TEXT[verdict.kind];
  const rate =
    verdict.kind === "growing" && verdict.bytes_per_second > 0
      ? ` It grows by ${formatBytes(verdict.bytes_per_second)} a second.`
      : "";
  return (
    <Term definition={`${text.definition}${rate} Confidence ${formatPercent(verdict.confidence)}.`}>
      <span className="verdict" data-kind={verdict.kind}>
        {text.label}
      </span>
    </Term>
  );
}
