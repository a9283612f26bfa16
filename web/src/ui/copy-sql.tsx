// A button that copies the statement in SQL behind a table.
import type { SqlOffer } from "../lib/sql-statements.ts";
import { Button } from "./controls.tsx";
import { useCopy } from "./notice.tsx";

export function CopySql({ offer }: { offer: SqlOffer }) {
  const copy = useCopy();
  const { statement, why } = offer;
  return (
    <Button
      quiet
      aria-label="Copy as SQL"
      disabled={statement === undefined}
      title={why ?? "The statement that gives these rows, for the SQL view and for “heaptrace sql”"}
      onClick={() => statement !== undefined && copy(statement, "the statement")}
    >
      SQL
    </Button>
  );
}
