// The verdict on a site's history, as a word with its colour; the reason is text beside it.
import type { Verdict } from "../api/types.ts";
import { formatBytes, formatPercent } from "../lib/format.ts";
import type { VerdictName } from "../lib/search-params.ts";
import { Term } from "./term.tsx";

/** The page's name of a verdict: `bounded` without a single free is not the same as a cache. */
export function verdictName(verdict: Verdict): VerdictName {
  return verdict.never_freed ? "never_freed" : verdict.kind;
}

export const VERDICT_TEXT: Record<VerdictName, { label: string; definition: string }> = {
  growing: {
    label: "growing",
    definition: "Live bytes of this site keep growing: a leak, unless the program is still filling a cache.",
  },
  bounded: {
    label: "bounded",
    definition: "Live bytes grew to a level and stayed there: a cache or a pool, most likely.",
  },
  never_freed: {
    label: "never freed",
    definition:
      "Growth has stopped, but of many blocks that came over a long time none was ever freed: a leak whose requests have stopped looks like this, and so does a table that is filled once.",
  },
  one_time: {
    label: "one time",
    definition: "Allocated once, at one moment, and kept: usually a global that lives as long as the program.",
  },
  unclear: { label: "unclear", definition: "There is too little history to say." },
};

export function VerdictBadge({ verdict }: { verdict: Verdict }) {
  const name = verdictName(verdict);
  const text = VERDICT_TEXT[name];
  const rate =
    verdict.kind === "growing" && verdict.bytes_per_second > 0
      ? ` It grows by ${formatBytes(verdict.bytes_per_second)} a second.`
      : "";
  return (
    <Term definition={`${text.definition}${rate} Confidence ${formatPercent(verdict.confidence)}.`}>
      <span className="verdict" data-kind={name}>
        {text.label}
      </span>
    </Term>
  );
}

/** The word alone, for a cell of a table. */
export function VerdictWord({ verdict }: { verdict: Verdict }) {
  const name = verdictName(verdict);
  return (
    <span className="verdict" data-kind={name} title={verdict.why}>
      {VERDICT_TEXT[name].label}
    </span>
  );
}
