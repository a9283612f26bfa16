// The frame under the pointer, with its numbers.
import type { Flamegraph } from "../../api/types.ts";
import { type FlameNode, nodeName } from "../../lib/flame-tree.ts";
import { formatExact, formatPercent } from "../../lib/format.ts";
import { location } from "../../lib/names.ts";
import { Tip } from "../../ui/flame/tip.tsx";

interface FrameTipProps {
  node: FlameNode;
  x: number;
  y: number;
  document: Flamegraph;
  root: FlameNode;
}

export function FrameTip({ node, x, y, document, root }: FrameTipProps) {
  const { frame } = node;
  return (
    <Tip x={x} y={y}>
      <div className="frame-tip-name mono">{nodeName(node)}</div>
      {frame && (
        <div className="muted">
          {[frame.module ?? "unknown module", location(frame.file, frame.line), frame.inlined ? "inlined" : undefined]
            .filter(Boolean)
            .join(" · ")}
        </div>
      )}
      <dl>
        <div>
          <dt>total</dt>
          <dd>{formatExact(node.value, document.unit)}</dd>
          <dd>{formatPercent(node.value / document.total)}</dd>
        </div>
        <div>
          <dt>self</dt>
          <dd>{formatExact(node.own, document.unit)}</dd>
          <dd>{formatPercent(node.own / document.total)}</dd>
        </div>
        {node.parent && (
          <div>
            <dt>of caller</dt>
            <dd />
            <dd>{formatPercent(node.value / node.parent.value)}</dd>
          </div>
        )}
        {root.parent === undefined && document.ancestors.length > 0 && (
          <div>
            <dt>of shown</dt>
            <dd />
            <dd>{formatPercent(node.value / root.value)}</dd>
          </div>
        )}
      </dl>
      <div className="muted">
        {node.folded > 0 ? "Too narrow to draw: click to look closer" : "Click to zoom, right click for more"}
      </div>
    </Tip>
  );
}
