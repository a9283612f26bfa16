// A frame with its full name and its numbers, as tooltips show it.
import { useQuery } from "@tanstack/react-query";
import { documentQuery } from "../../api/queries.ts";
import type { Flamegraph } from "../../api/types.ts";
import { type FlameNode, nodeName } from "../../lib/flame-tree.ts";
import { formatExact, formatPercent, formatValue } from "../../lib/format.ts";
import { fileName, location } from "../../lib/names.ts";
import { usePage } from "../../ui/page.ts";

/** The build id of the module with this file name; nothing where it is not known, or several modules have the name. */
function useBuildId(module: string | null | undefined): string | undefined {
  const { subject } = usePage();
  const { data } = useQuery({ ...documentQuery(subject, "modules"), enabled: module != null });
  const ids = new Set(data?.modules.filter(({ path }) => fileName(path) === module).map(({ build_id }) => build_id));
  const [only] = ids;
  return ids.size === 1 ? (only ?? undefined) : undefined;
}

interface FrameFactsProps {
  node: FlameNode;
  document: Flamegraph;
  /** The frame that takes the whole width. */
  zoom: FlameNode;
}

export function FrameFacts({ node, document, zoom }: FrameFactsProps) {
  const { frame } = node;
  const { unit, total } = document;
  const buildId = useBuildId(frame?.module);
  const otherUnit = unit === "bytes" ? "count" : "bytes";
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
      {buildId && (
        <div className="muted frame-tip-build">
          build id <span className="mono">{buildId}</span>
        </div>
      )}
      <dl>
        {row("total", node.value, total)}
        {/* Of pages the number follows from the bytes. */}
        {node.other !== undefined && !document.pinned && (
          <div data-testid="other-unit">
            <dt>{otherUnit === "count" ? "blocks" : "bytes"}</dt>
            <dd>{otherUnit === "bytes" ? formatValue(node.other, otherUnit) : ""}</dd>
            <dd>{formatExact(node.other, otherUnit)}</dd>
            <dd />
          </div>
        )}
        {!Number.isNaN(node.own) && row("self", node.own, total)}
        {node.parent && part("of caller", node.parent.value)}
        {zoom.parent && node !== zoom && part("of shown", zoom.value)}
      </dl>
    </>
  );
}
