// What a report is about: its window, its filter, and what was left out so that it fits.
import type { Report } from "../api/report.ts";
import { formatInstant, formatStart } from "../lib/format.ts";
import { Term } from "../ui/term.tsx";

const MISSING = `Needs the recording and “heaptrace server”:
another window, instant or filter;
the metrics freed and grown;
single blocks, comparisons, source files, questions in SQL;
where resident memory is at another moment.`;

export function ReportBar({ report }: { report: Report }) {
  const filters = Object.entries(report.filters);
  return (
    <aside className="report-bar" aria-label="About this report">
      <span>
        <b>Report</b> of {report.name}, {formatInstant(report.from_ns)} to {formatInstant(report.to_ns)}
      </span>
      {filters.map(([name, value]) => (
        <span key={name} className="chip">
          <b>{name.replace("_", " ")}</b> <span className="chip-value">{value.replace(/^\(\?i\)/, "")}</span>
        </span>
      ))}
      <span className="muted">made {formatStart(report.made_at)}</span>
      <span className="muted">
        <Term definition={MISSING}>not in here</Term>
      </span>
      {report.left_out.length > 0 && (
        <span className="warn" title={report.left_out.join("\n")}>
          shortened: {report.left_out[0]}
        </span>
      )}
    </aside>
  );
}
