// The rows of an answer in SQL, as a table.
import { type CSSProperties, useMemo } from "react";
import type { TimedAnswer } from "../../api/queries.ts";
import type { SqlAnswer } from "../../api/types.ts";
import { formatCount, formatDuration, plural } from "../../lib/format.ts";
import { sortedRows } from "../../lib/sorting.ts";
import { Button } from "../../ui/controls.tsx";
import { type Column, DataTable, downloadCsv, toTsv } from "../../ui/data-table.tsx";
import { useCopy } from "../../ui/notice.tsx";
import { MatchCount, useSearch } from "../../ui/search.tsx";
import { useSorting } from "../../ui/sorting.ts";
import { Empty } from "../../ui/states.tsx";
import { type AnswerRow, charactersOf, columnId, exactText, kindOf, rowsOf, shortText } from "./cells.ts";

/** Rows whose texts decide how wide a column is. */
const MEASURED = 300;
/** Pixels between two columns, and before the first and behind the last. */
const GAP = 12;

/** The order that the answer came in: no column has this name. */
const OWN_ORDER = { column: "answer", reversed: false };

export function AnswerTable({ answer, ms }: TimedAnswer) {
  const copy = useCopy();
  const chosen = useSorting(OWN_ORDER);
  const sorting = { ...chosen, keys: chosen.keys.filter((key) => key.column !== OWN_ORDER.column) };
  const find = useSearch();
  const all = useMemo(() => rowsOf(answer), [answer]);
  const rows = useMemo(
    () => all.filter((row) => find.hit(...row.cells.map((cell) => (cell === null ? "NULL" : String(cell))))),
    [all, find],
  );
  const { columns, characters } = useMemo(() => columnsFor(answer, all), [answer, all]);
  const shown = () => sortedRows(rows, columns, sorting.keys);
  const width = `calc(${characters}ch + ${(columns.length + 1) * GAP}px)`;
  return (
    <>
      <div className="sql-bar">
        <span data-testid="sql-summary">
          <b className="strong">{plural(answer.row_count, "row")}</b>{" "}
          <span className="muted">
            in {formatDuration(ms * 1e6)}
            {answer.truncated && `; the first ${formatCount(answer.row_count)}, there are more`}
          </span>
        </span>
        <MatchCount search={find} shown={rows.length} of={all.length} what="rows" />
        <span className="spring" />
        <Button quiet onClick={() => copy(toTsv(columns, shown()), plural(rows.length, "row"))}>
          Copy table
        </Button>
        <Button quiet onClick={() => downloadCsv(columns, shown(), "sql.csv")}>
          CSV
        </Button>
      </div>
      {rows.length === 0 ? (
        <Empty title="No row">
          <p>
            {find.active
              ? "Nothing in the answer matches the search."
              : `The columns would be ${answer.columns.join(", ")}.`}
          </p>
        </Empty>
      ) : (
        <div className="answer sql-answer" style={{ "--sql-width": width } as CSSProperties}>
          <DataTable
            label="Answer"
            rows={rows}
            columns={columns}
            rowKey={(row) => String(row.index)}
            sorting={sorting}
            menu={(row) => [
              { label: "Copy row", run: () => copy(toTsv(columns, [row]), "the row") },
              { label: "Copy table", run: () => copy(toTsv(columns, shown()), plural(rows.length, "row")) },
            ]}
          />
        </div>
      )}
    </>
  );
}

/** A column for each of the answer, and how many characters they need together. */
function columnsFor(
  answer: SqlAnswer,
  rows: readonly AnswerRow[],
): { columns: Column<AnswerRow>[]; characters: number } {
  let characters = 0;
  const columns = answer.columns.map((name, at): Column<AnswerRow> => {
    const values = rows.map((row) => row.cells[at] ?? null);
    const kind = kindOf(name, values);
    const texts = values.slice(0, MEASURED).map((value) => (value === null ? "NULL" : shortText(kind, value)));
    const own = charactersOf(name, texts);
    characters += own;
    return {
      id: columnId(at),
      header: name,
      definition: `Column ${name}`,
      width: kind === "text" ? `minmax(${own}ch, ${own}fr)` : `${own}ch`,
      numeric: kind !== "text",
      value: (row) => row.cells[at] ?? "",
      cell: (row) => {
        const value = row.cells[at] ?? null;
        if (value === null) return <span className="muted">NULL</span>;
        return <span title={exactText(kind, value)}>{shortText(kind, value)}</span>;
      },
    };
  });
  return { columns, characters };
}
