// What to do with a graph in which most functions are too narrow to be drawn.
import { type FlameNode, mostlyFolded } from "../../lib/flame-tree.ts";
import { formatPercent, plural } from "../../lib/format.ts";
import { Button } from "../controls.tsx";
import { usePage } from "../page.ts";

export function FoldedNote({ root }: { root: FlameNode }) {
  const { go, view, search } = usePage();
  const rest = mostlyFolded(root);
  if (!rest) return null;
  const hidden = Number.isFinite(rest.folded) ? plural(rest.folded, "function") : "Functions";
  return (
    <p className="folded-note" role="note">
      {hidden} that hold {formatPercent(rest.weight / root.weight)} are each less than a pixel wide here. A table lists
      them one by one; a filter or a narrower window gives each more room.{" "}
      {view === "compare" ? (
        <Button onClick={() => go({ graph: undefined })}>As a table</Button>
      ) : (
        <Button onClick={() => go({ sort: search.inverted ? "flat" : "cum", root: undefined }, { view: "functions" })}>
          As a table
        </Button>
      )}
    </p>
  );
}
