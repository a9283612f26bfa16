// The bar under the graph: the frame under the pointer or the keyboard, with its numbers.
import type { Flamegraph } from "../../api/types.ts";
import { type FlameNode, nodeName } from "../../lib/flame-tree.ts";
import { formatExact, formatPercent, formatValue } from "../../lib/format.ts";
import { location, shortName } from "../../lib/names.ts";
import { plainTypes } from "../../lib/plain-types.ts";

export interface DetailsProps {
  node: FlameNode | undefined;
  document: Flamegraph;
  /** The frame that takes the whole width. */
  zoom: FlameNode;
  /** What the graph shows, where there are two. */
  label?: string;
  /** Whether what a frame holds itself means anything in this graph. */
  withSelf?: boolean;
}

export function Details({ node, document, zoom, label, withSelf = true }: DetailsProps) {
  if (!node) return <footer className="details" />;
  const { frame } = node;
  return (
    <footer className="details">
      {label && <b>{label}</b>}
      <span className="details-name mono">{shortName(plainTypes(nodeName(node)), 300)}</span>
      {frame?.inlined && <span className="badge">inlined</span>}
      <span className="muted">{[frame?.module, location(frame?.file, frame?.line)].filter(Boolean).join(" · ")}</span>
      <span className="spring" />
      {withSelf && !Number.isNaN(node.own) && (
        <span title={formatExact(node.own, document.unit)}>
          <span className="muted">self</span> {formatValue(node.own, document.unit)}
        </span>
      )}
      <span title={formatExact(node.value, document.unit)}>
        <span className="muted">total</span> <b>{formatValue(node.value, document.unit)}</b>
      </span>
      <span title="of everything in this window and filter">{formatPercent(node.value / document.total)}</span>
      {zoom.parent && <span title="of the zoomed frame">{formatPercent(node.value / zoom.value)} of shown</span>}
    </footer>
  );
}
