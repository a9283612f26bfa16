// Mappings that were never given back: a leak that no sum of blocks has.
import type { Leaks } from "../../api/types.ts";
import { formatBytes, plural } from "../../lib/format.ts";
import { sumOfMapped } from "../../lib/mapped-sites.ts";
import { allocatorName } from "../../lib/stack.ts";
import { Button } from "../../ui/controls.tsx";
import { usePage } from "../../ui/page.ts";
import { Term } from "../../ui/term.tsx";

/** What was mapped piece by piece and never unmapped, with a way to where its pages are. */
export function NeverUnmapped({ leaks }: { leaks: Leaks }) {
  const { go } = usePage();
  const sites = leaks.still_mapped ?? [];
  const sum = sumOfMapped(sites);
  if (sum.count === 0) return null;
  const makers = sites.slice(0, 5).map((site) => `${allocatorName(site.stack, "unknown")} ${formatBytes(site.bytes)}`);
  return (
    <span className="muted">
      {formatBytes(sum.bytes)} in {plural(sum.count, "mapping")}{" "}
      <Term
        definition={`Address space that the program mapped beside the allocator and never unmapped; in no sum of blocks. Largest: ${makers.join(", ")}.`}
      >
        never unmapped
      </Term>{" "}
      <Button onClick={() => go({}, { view: "memory" })}>Where they are</Button>
    </span>
  );
}
