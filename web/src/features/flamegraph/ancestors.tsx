// The way down to the node that the graph starts from; each step leads back up.
import { useState } from "react";
import type { Flamegraph } from "../../api/types.ts";
import { formatValue } from "../../lib/format.ts";
import { shortName } from "../../lib/names.ts";
import { Button } from "../../ui/controls.tsx";
import { usePage } from "../../ui/page.ts";

const SHOWN = 4;

export function Ancestors({ document }: { document: Flamegraph }) {
  const { go } = usePage();
  const [all, setAll] = useState(false);
  const { ancestors, frames, rows } = document;
  const total = (
    <span className="muted">
      {document.metric} total <b className="strong">{formatValue(document.total, document.unit)}</b>
    </span>
  );
  if (ancestors.length === 0) return <div className="ancestors">{total}</div>;
  const hidden = all ? 0 : Math.max(0, ancestors.length - SHOWN);
  const here = rows.frame[0];
  return (
    <nav className="ancestors" aria-label="Path to the zoomed frame">
      <Button quiet onClick={() => go({ root: undefined })} title="The whole tree">
        all
      </Button>
      {hidden > 1 && (
        <Button quiet onClick={() => setAll(true)} title="Show every step">
          … {hidden - 1} more
        </Button>
      )}
      {ancestors.slice(Math.max(1, hidden)).map((ancestor) => {
        const name = ancestor.frame == null ? "all" : (frames[ancestor.frame]?.name ?? "");
        return (
          <span key={ancestor.id} className="crumb">
            <span aria-hidden="true" className="muted">
              ›
            </span>
            <Button
              quiet
              onClick={() => go({ root: ancestor.id })}
              title={`${shortName(name, 300)}: ${formatValue(ancestor.value, document.unit)}`}
            >
              {shortName(name, 28)}
            </Button>
          </span>
        );
      })}
      <span aria-hidden="true" className="muted">
        ›
      </span>
      <b className="here">{shortName(here == null ? "all" : (frames[here]?.name ?? ""), 40)}</b>
      {total}
    </nav>
  );
}
