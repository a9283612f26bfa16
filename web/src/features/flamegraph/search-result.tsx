// What a search found in the graph: how much it holds, how many frames match, and the way from one to the next.

import { useQuery } from "@tanstack/react-query";
import { memo } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Flamegraph } from "../../api/types.ts";
import type { Matches } from "../../lib/flame-tree.ts";
import { formatCount, formatPercent, formatValue } from "../../lib/format.ts";
import { readPattern, serverPattern } from "../../lib/pattern.ts";
import { Button } from "../../ui/controls.tsx";
import { usePage, useRequest } from "../../ui/page.ts";

interface SearchResultProps {
  document: Flamegraph;
  /** Of the tree that is drawn. */
  matches: Matches | undefined;
  /** Number of the match that the keyboard is on, from 0; -1: none. */
  at: number;
  step: (by: 1 | -1) => void;
}

/** How much matches: exact for the whole tree, by asking the server for stacks with a match. */
export const SearchResult = memo(({ document, matches, at, step }: SearchResultProps) => {
  const { search, subject, report } = usePage();
  const request = useRequest();
  const pattern = readPattern(search.q ?? "");
  const canAsk = pattern.kind === "valid" && !report;
  const query = useQuery({
    ...documentQuery(subject, "flamegraph", {
      ...request.metric,
      ...request.filters,
      focus: [request.filters["focus"], serverPattern(search.q ?? "")].filter(Boolean).join("\n"),
      width: 100,
      max_nodes: 10,
    }),
    enabled: canAsk,
    placeholderData: undefined,
  });
  if (pattern.kind !== "valid") return null;
  const exact = canAsk ? query.data?.total : undefined;
  const value = exact ?? matches?.value ?? 0;
  const count = matches?.rows.size ?? 0;
  return (
    <span className="search-result">
      <output>
        {exact === undefined ? "at least " : ""}
        <b>{formatValue(value, document.unit)}</b> ({formatPercent(value / document.total)}) in stacks with a match;{" "}
        {at >= 0 ? `${formatCount(at + 1)} of ` : ""}
        {formatCount(count)} {count === 1 ? "frame" : "frames"}
      </output>
      {count > 0 && (
        <>
          <Button quiet onClick={() => step(-1)} title="Previous match (N, Shift + Enter in the search field)">
            ‹<span className="visually-hidden"> previous match</span>
          </Button>
          <Button quiet onClick={() => step(1)} title="Next match (n, Enter in the search field)">
            ›<span className="visually-hidden"> next match</span>
          </Button>
        </>
      )}
    </span>
  );
});
