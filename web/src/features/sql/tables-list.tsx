// What a question in SQL can be about: tables, functions and views with their columns.
import type { SqlSchema, SqlTableInfo } from "../../api/types.ts";
import { Button } from "../../ui/controls.tsx";

interface TablesListProps {
  schema: SqlSchema;
  /** Puts a name into the query. */
  insert: (name: string) => void;
  /** Asks a whole query. */
  ask: (query: string) => void;
}

export function TablesList({ schema, insert, ask }: TablesListProps) {
  return (
    <>
      <h2>Tables</h2>
      <p className="muted">A click on a name puts it into the query. Times are nanoseconds since the start.</p>
      {schema.tables.map((table) => (
        <details key={table.name} className="sql-table">
          <summary className="mono">{signature(table)}</summary>
          <p>
            <WithCode text={table.about} />
          </p>
          {table.query !== null && table.query !== undefined && <pre className="mono">{table.query}</pre>}
          <p>
            <Button onClick={() => ask(`SELECT * FROM ${call(table)} LIMIT 100`)}>First rows</Button>{" "}
            <Button quiet onClick={() => insert(call(table))}>
              Into the query
            </Button>
          </p>
          {table.parameters.length > 0 && (
            <dl aria-label={`Parameters of ${table.name}`}>
              {table.parameters.map(({ name, about }) => (
                <div key={name}>
                  <dt className="mono">{name}</dt>
                  <dd className="muted">
                    <WithCode text={about} />
                  </dd>
                </div>
              ))}
            </dl>
          )}
          {table.columns.length > 0 && (
            <dl aria-label={`Columns of ${table.name}`}>
              {table.columns.map(({ name, kind, about }) => (
                <div key={name}>
                  <dt>
                    <button type="button" className="link mono" title={kind} onClick={() => insert(name)}>
                      {name}
                    </button>
                  </dt>
                  <dd className="muted">
                    <WithCode text={about} />
                  </dd>
                </div>
              ))}
            </dl>
          )}
        </details>
      ))}
    </>
  );
}

function signature({ name, parameters }: SqlTableInfo): string {
  return parameters.length > 0 ? `${name}(${parameters.map((parameter) => parameter.name).join(", ")})` : name;
}

function call({ name, parameters }: SqlTableInfo): string {
  return parameters.length > 0 ? `${name}()` : name;
}

/** A text in which code is between backticks. */
function WithCode({ text }: { text: string }) {
  const parts = text.split("`").map((part, at) => ({ part, key: `${at} ${part}`, isCode: at % 2 === 1 }));
  return parts.map(({ part, key, isCode }) => (isCode ? <code key={key}>{part}</code> : part));
}
