// The part of the peak that is in functions without names: asked once for the frame of every view.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { documentQuery } from "../api/queries.ts";
import { type Unnamed, unnamedOf } from "../lib/unnamed.ts";
import { usePage } from "../ui/page.ts";

/** Nothing while a program runs, in a report, and without an allocation. */
export function useUnnamed(): Unnamed | undefined {
  const { subject, running, report, info } = usePage();
  const functions = useQuery({
    ...documentQuery(subject, "functions", { metric: "peak", by: "program", search: "^0x[0-9a-f]+$", limit: 1000 }),
    enabled: !running && !report && (info?.allocations.count ?? 0) > 0,
  });
  const { data } = functions;
  // A thousand rows, and a link beside the result that changes with every address.
  return useMemo(() => data && unnamedOf(data), [data]);
}
