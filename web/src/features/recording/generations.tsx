// Between two marks lies a generation: what was allocated in it, and what of that is still live at the end.
import { useQueries } from "@tanstack/react-query";
import { documentQuery } from "../../api/queries.ts";
import type { Info } from "../../api/types.ts";
import { formatExact, formatInstant, formatSigned, formatValue, plural } from "../../lib/format.ts";
import { generationsOf } from "../../lib/generations.ts";
import { Button } from "../../ui/controls.tsx";
import { useNotes } from "../../ui/notes.ts";
import { usePage } from "../../ui/page.ts";

const METRICS = ["allocated", "grown", "leaked"] as const;
/** Generations that are asked about. */
const MOST = 24;

export function Generations({ info }: { info: Info }) {
  const { subject, recording, report, endNs, go } = usePage();
  const notes = useNotes(recording.name);
  const all = generationsOf([...info.marks.map((mark) => ({ t: mark.t_ns, text: mark.label })), ...notes.list], endNs);
  const shown = all.slice(0, MOST);
  const enabled = !report && all.length > 1;
  const answers = useQueries({
    queries: shown.flatMap(({ from, to }) =>
      METRICS.map((metric) => ({ ...documentQuery(subject, "functions", { from, to, metric, limit: 1 }), enabled })),
    ),
  });
  if (!enabled) return null;
  return (
    <section aria-labelledby="generations" className="generations">
      <h2 id="generations">
        Generations{" "}
        <span className="muted">
          {all.length > MOST ? `the first ${MOST} of ${plural(all.length, "generation")}` : "from mark to mark"}
        </span>
      </h2>
      <table className="small-table">
        <thead>
          <tr>
            <th>From</th>
            <th className="numeric">Time</th>
            <th className="numeric">Allocated</th>
            <th className="numeric">Grown</th>
            <th className="numeric">Still live at the end</th>
            <th>
              <span className="visually-hidden">Choose</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.map((generation, i) => {
            const total = (metric: number) => answers[i * METRICS.length + metric]?.data?.total;
            const [allocated, grown, leaked] = [total(0), total(1), total(2)];
            return (
              <tr key={`${generation.from} ${generation.name}`} data-generation={generation.name}>
                <td>{generation.name}</td>
                <td className="numeric">
                  {formatInstant(generation.from)} to {formatInstant(generation.to)}
                </td>
                <td className="numeric" title={allocated === undefined ? undefined : formatExact(allocated, "bytes")}>
                  {allocated === undefined ? "…" : formatValue(allocated, "bytes")}
                </td>
                <td className="numeric" title={grown === undefined ? undefined : formatExact(grown, "bytes")}>
                  {grown === undefined ? "…" : formatSigned(grown, "bytes")}
                </td>
                <td className="numeric" title={leaked === undefined ? undefined : formatExact(leaked, "bytes")}>
                  {leaked === undefined ? "…" : formatValue(leaked, "bytes")}
                </td>
                <td>
                  <Button
                    quiet
                    onClick={() => go({ window: { from: generation.from, to: generation.to }, at: undefined })}
                  >
                    Window
                  </Button>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}
