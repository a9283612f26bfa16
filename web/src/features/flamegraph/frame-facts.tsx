// A frame with its full name and its numbers, as tooltips show it.
import type { Flamegraph } from "../../api/types.ts";
import { type FlameNode, nodeName } from "../../lib/flame-tree.ts";
import { formatExact, formatPercent, formatValue } from "../../lib/format.ts";
import { location } from "../../lib/names.ts";

interface FrameFactsProps {
  node: FlameNode;
  document: Flamegraph;
  /** The frame that takes the whole width. */
  zoom: FlameNode;
}

export function FrameFacts({ node, document, zoom }: FrameFactsProps) {
  const { frame } = node;
  const { unit, total } = document;
  const row = (name: string, value: number, whole: number) => (
    <div>
      <dt>{name}</dt>
      <dd>{unit === "bytes" ? formatValue(value, unit) : ""}</dd>
      <dd>{formatExact(value, unit)}</dd>
      <dd>{formatPercent(value / whole)}</dd>
    </div>
  );
  const part = (name: string, whole: number) => (
    <div>
      <dt>{name}</dt>
      <dd />
      <dd />
      <dd>{formatPercent(node.value / whole)}</dd>
    </div>
  );
  return (
    <>
      <div className="frame-tip-name mono">{nodeName(node)}</div>
      {frame && (
        <div className="muted">
          {[frame.module ?? "unknown module", location(frame.file, frame.line), frame.inlined ? "inlined" : undefined]
            .filter(Boolean)
            .join(" · ")}
        </div>
      )}
      <dl>
        {row("total", node.value, total)}
        {!Number.isNaN(node.own) && row("self", node.own, total)}
        {node.parent && part("of caller", node.parent.value)}
        {zoom.parent && node !== zoom && part("of shown", zoom.value)}
      </dl>
    </>
  );
}
