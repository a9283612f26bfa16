// The way down to the frame that takes the whole width; each step leads back up.
import { useState } from "react";
import type { Flamegraph } from "../../api/types.ts";
import { type FlameNode, nodeName } from "../../lib/flame-tree.ts";
import { formatPercent, formatValue } from "../../lib/format.ts";
import { shortName } from "../../lib/names.ts";
import { pagesOf } from "../../lib/pins.ts";
import { Button } from "../../ui/controls.tsx";
import { boxLabel } from "../../ui/flame/box-text.ts";
import { usePage } from "../../ui/page.ts";

const SHOWN = 4;

export function Ancestors({ document, zoom }: { document: Flamegraph; zoom: FlameNode }) {
  const { go, info } = usePage();
  const [all, setAll] = useState(false);
  const { total, unit, metric, pinned } = document;
  const whole = (
    <span className="muted">
      {pinned ? `pinned ${pagesOf(document.pin_unit)}` : `${metric} total`}{" "}
      <b className="strong">{formatValue(total, unit)}</b>
      {document.peak_of === "filter" && info && (
        <>
          {" "}
          at its own peak; the heap’s was <b>{formatValue(info.peak[unit], unit)}</b>
        </>
      )}
    </span>
  );
  const above: FlameNode[] = [];
  for (let at = zoom.parent; at; at = at.parent) above.unshift(at);
  if (above.length === 0) return <div className="ancestors">{whole}</div>;
  const hidden = all ? 0 : Math.max(0, above.length - SHOWN);
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
      {above.slice(Math.max(1, hidden)).map((node) => (
        <span key={node.id} className="crumb">
          <span aria-hidden="true" className="muted">
            ›
          </span>
          <Button
            quiet
            onClick={() => go({ root: node.id })}
            title={`${shortName(nodeName(node), 300)}: ${formatValue(node.value, unit)}`}
          >
            {shortName(boxLabel(nodeName(node), node.frame?.file), 28)}
          </Button>
        </span>
      ))}
      <span aria-hidden="true" className="muted">
        ›
      </span>
      <b className="here" title={nodeName(zoom)}>
        {shortName(boxLabel(nodeName(zoom), zoom.frame?.file), 40)}
      </b>
      <span>
        <b>{formatValue(zoom.value, unit)}</b> <span className="muted">{formatPercent(zoom.value / total)} of</span>
      </span>
      {whole}
    </nav>
  );
}
