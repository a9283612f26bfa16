// What the colours mean, and the choice of what they are by.
import { memo } from "react";
import type { Flamegraph } from "../../api/types.ts";
import { changeColor, type Theme } from "../../lib/colors.ts";
import type { FlameNode } from "../../lib/flame-tree.ts";
import { formatPercent, formatSigned } from "../../lib/format.ts";
import { fileName, shortName } from "../../lib/names.ts";
import { COLOR_GROUPS, type ColorGroup } from "../../lib/search-params.ts";
import { Select } from "../../ui/controls.tsx";
import { type Coloring, groupColor, huesOf, largestChange } from "../../ui/flame/coloring.ts";
import { usePage } from "../../ui/page.ts";

interface LegendProps {
  coloring: Coloring;
  document: Flamegraph;
  tree: FlameNode;
  theme: Theme;
}

const TEXT: Record<ColorGroup, string> = {
  module: "module",
  file: "file",
  namespace: "namespace",
  function: "function",
  language: "language",
};

export const Legend = memo(({ coloring, document, tree, theme }: LegendProps) => {
  const { search, go } = usePage();
  if (document.metric === "grown") return <Changes tree={tree} document={document} theme={theme} />;
  const { by, why, groups } = coloring;
  const hues = huesOf(tree, theme, by);
  const choices = [
    { value: "auto" as const, label: search.color ? "Colours: automatic" : `Colours: ${TEXT[by]} (automatic)` },
    ...COLOR_GROUPS.map((value) => ({ value, label: `Colours: ${TEXT[value]}` })),
  ];
  return (
    <div className="flame-legend">
      <Select
        label="Colours"
        showLabel={false}
        value={search.color ?? "auto"}
        choices={choices}
        onChange={(value) => go({ color: value === "auto" ? undefined : value }, { replace: true })}
      />
      {why && <span className="muted">since {why}</span>}
      <ul>
        {groups.map(({ name, part }) => (
          <li key={name} title={`${name}: ${formatPercent(part)} of the picture`}>
            <i style={{ background: groupColor(name, name, theme, hues.get(name)) }} aria-hidden="true" />
            {shortName(by === "file" || by === "module" ? fileName(name) : name, 26)}{" "}
            <span className="muted">{formatPercent(part)}</span>
          </li>
        ))}
      </ul>
    </div>
  );
});

/** Blue shrank, red grew; the ends of the scale with their numbers. */
function Changes({ tree, document, theme }: Omit<LegendProps, "coloring">) {
  const largest = largestChange(tree);
  const steps = [-1, -0.25, 0, 0.25, 1];
  return (
    <div className="flame-legend">
      <ul>
        {steps.map((step) => (
          <li key={step}>
            <i style={{ background: changeColor(step * largest, largest, theme) }} aria-hidden="true" />
            {formatSigned(step * largest, document.unit)}
          </li>
        ))}
      </ul>
      <span className="muted">blue shrank, red grew; a frame is as wide as all changes in it together</span>
    </div>
  );
}
