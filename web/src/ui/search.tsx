// The search of the page in views that keep, mark or count what it matches.
import { useMemo } from "react";
import { formatCount } from "../lib/format.ts";
import { readPattern, serverPattern } from "../lib/pattern.ts";
import { usePage } from "./page.ts";

export interface Search {
  /** A search is active, and its pattern is valid. */
  active: boolean;
  /** Whether one of the texts matches; everything does where nothing is searched. */
  hit: (...texts: (string | null | undefined)[]) => boolean;
  /** The pattern as the server takes it. */
  asked: string | undefined;
}

export function useSearch(): Search {
  const text = usePage().search.q ?? "";
  return useMemo(() => {
    const pattern = readPattern(text);
    if (pattern.kind !== "valid") return { active: false, hit: () => true, asked: undefined };
    const hit: Search["hit"] = (...texts) => texts.some((one) => one != null && pattern.test(one));
    return { active: true, hit, asked: serverPattern(text) };
  }, [text]);
}

interface MatchCountProps {
  search: Search;
  shown: number;
  of: number;
  /** What is counted: `rows`. */
  what: string;
}

/** How much of a list the search has left; nothing where nothing is searched. */
export function MatchCount({ search, shown, of, what }: MatchCountProps) {
  if (!search.active) return null;
  return (
    <output className="muted" data-testid="matches">
      {formatCount(shown)} of {formatCount(of)} {what} match
    </output>
  );
}
