// Live memory over time, taken apart: the largest functions, modules, threads, sites or languages, and the rest.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { BreakdownRow } from "../../api/types.ts";
import { formatCount } from "../../lib/format.ts";
import { identityOf } from "../../lib/identity.ts";
import { layersOf } from "../../lib/layers.ts";
import { bareName } from "../../lib/names.ts";
import { LAYERS, type LayerName, type PageSearch, type View } from "../../lib/search-params.ts";
import { Segmented } from "../../ui/controls.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { type Layer, StackedChart } from "../../ui/stacked-chart.tsx";

const LAYER_TEXT: Record<LayerName, string> = {
  function: "Functions",
  module: "Modules",
  thread: "Threads",
  site: "Sites",
  language: "Languages",
};
const POINTS = 300;

export function LayersPanel({ wait }: { wait: boolean }) {
  const { search, subject, report, go } = usePage();
  const request = useRequest();
  const by = search.layers ?? "function";
  const query = useQuery({
    ...documentQuery(
      subject,
      "breakdown",
      report ? { by } : { ...request.window, ...request.filters, by, points: POINTS, top: 10 },
    ),
    enabled: !wait,
  });
  const { data } = query;
  const layers = useMemo(
    () =>
      data
        ? layersOf(data).map(
            ({ id, row, color, values }): Layer => ({
              id,
              color,
              values,
              label: row ? bareName(row.name, 60) : `the rest, ${formatCount(data.rest_rows)} more`,
              ...(row ? { title: row.name } : {}),
            }),
          )
        : [],
    [data],
  );
  const choose = (layer: Layer) => {
    const row = data?.rows.find((one) => one.id === layer.id);
    if (!row) return;
    const { patch, view } = chosen(by, row, search);
    go(patch, { view });
  };
  return (
    <section aria-labelledby="layers" className="layers-panel" data-panel="layers">
      <h2 id="layers">Live memory over time</h2>
      <div className="view-bar">
        <Segmented
          label="Layers"
          value={by}
          choices={LAYERS.map((value) => ({ value, label: LAYER_TEXT[value] }))}
          onChange={(value) => go({ layers: value === "function" ? undefined : value }, { replace: true })}
        />
        <span className="muted">the ten largest and the rest; together the live bytes at each moment</span>
      </div>
      {data ? (
        <StackedChart
          t={data.t_ns}
          layers={layers}
          shown={{ from: data.from_ns, to: Math.max(data.from_ns + 1, data.to_ns) }}
          height={240}
          label={`Live bytes over time by ${by}; the table has the values at the end, or under the pointer`}
          onChoose={choose}
        />
      ) : (
        <p className="muted">{query.error ? `Not known: ${query.error.message}` : "Adding up…"}</p>
      )}
    </section>
  );
}

/** Where a layer leads: its function, its site, or everything filtered to it. */
function chosen(by: LayerName, row: BreakdownRow, search: PageSearch): { patch: Partial<PageSearch>; view: View } {
  switch (by) {
    case "site":
      return { patch: { site: row.id }, view: "sites" };
    case "thread":
      return { patch: { filters: { ...search.filters, thread: row.id } }, view: "functions" };
    case "module":
    case "language":
      return { patch: { by: "program", q: undefined }, view: "functions" };
    case "function":
      return { patch: { selected: identityOf(row) }, view: "flamegraph" };
  }
}
