// Questions in SQL: a query, its answer as a table, and what can be asked. The query is in the address.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { ProblemError } from "../../api/client.ts";
import { sqlQuery, sqlSchemaQuery } from "../../api/queries.ts";
import type { SqlExample } from "../../api/types.ts";
import { recordingText } from "../../lib/recording.ts";
import { Button, Select } from "../../ui/controls.tsx";
import { below, type MenuItem, useMenu } from "../../ui/menu.tsx";
import { usePage } from "../../ui/page.ts";
import { Answer, Empty, Failure, Loading } from "../../ui/states.tsx";
import { AnswerTable } from "./answer-table.tsx";
import "./sql.css";
import { TablesList } from "./tables-list.tsx";

export function SqlView() {
  const { report } = usePage();
  if (!report) return <SqlConsole />;
  return (
    <Empty title="A report has no SQL">
      <p>Run “heaptrace server” on the recording to query it.</p>
    </Empty>
  );
}

function SqlConsole() {
  const { search, recording, recordings, go } = usePage();
  const client = useQueryClient();
  const openMenu = useMenu();
  const field = useRef<HTMLTextAreaElement>(null);
  const asked = search.sql;
  const [draft, setDraft] = useState(asked ?? "");
  // Back and forward bring other queries.
  useEffect(() => setDraft(asked ?? ""), [asked]);

  const others = recordings.filter(
    (known) => known.id !== recording.id && known.state !== "failed" && known.state !== "cancelled",
  );
  const other = others.find((known) => known.id === search.other);
  const question = sqlQuery(other ? [recording.id, other.id] : [recording.id], asked ?? "");
  const query = useQuery({ ...question, enabled: asked !== undefined });
  const schema = useQuery(sqlSchemaQuery());

  const ask = (text: string, second = other) => {
    setDraft(text);
    if (text.trim() === "") return;
    if (text === asked && second === other) void query.refetch();
    else go({ sql: text, other: second?.id ?? search.other, sort: undefined });
  };
  const askExample = (example: SqlExample) => ask(example.query, example.recordings > 1 ? (other ?? others[0]) : other);
  const isAnswerable = (example: SqlExample) => example.recordings <= 1 + others.length;
  const cancel = () => void client.cancelQueries({ queryKey: question.queryKey });
  const insert = (name: string) => {
    const element = field.current;
    if (!element) return;
    element.focus();
    element.setRangeText(name, element.selectionStart, element.selectionEnd, "end");
    setDraft(element.value);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    ask(draft);
  };
  const examples = schema.data?.examples ?? [];
  const exampleItems = examples.map(
    (example): MenuItem => ({
      label: example.title,
      hint: isAnswerable(example) ? undefined : "needs two recordings",
      disabled: !isAnswerable(example),
      run: () => askExample(example),
    }),
  );

  return (
    <div className="split-view sql-view">
      <div className="table-view">
        <div className="sql-editor">
          <label>
            <span className="visually-hidden">Query in SQL</span>
            <textarea
              ref={field}
              className="mono"
              value={draft}
              rows={6}
              spellCheck={false}
              autoComplete="off"
              autoCapitalize="off"
              placeholder="SELECT function, flat_bytes FROM functions('peak') ORDER BY flat_bytes DESC LIMIT 20"
              onChange={(event) => setDraft(event.target.value)}
              onKeyDown={onKeyDown}
            />
          </label>
          <div className="sql-bar">
            <Button onClick={() => ask(draft)} disabled={draft.trim() === ""} title="Ctrl+Enter, Cmd+Enter">
              Run
            </Button>
            {query.isFetching && <Button onClick={cancel}>Cancel</Button>}
            {query.isFetching && <RunningTime />}
            <span className="spring" />
            {others.length > 0 && (
              <Select
                label="Second recording"
                value={other?.id ?? ""}
                choices={[
                  { value: "", label: "none" },
                  ...others.map((known) => ({ value: known.id, label: recordingText(known) })),
                ]}
                onChange={(value) => go({ other: value === "" ? undefined : value })}
              />
            )}
            <Button
              quiet
              aria-haspopup="menu"
              disabled={examples.length === 0}
              onClick={(event) => openMenu(below(event.currentTarget), exampleItems)}
            >
              Examples
            </Button>
          </div>
        </div>
        {asked === undefined ? (
          <Empty title="Any question about the recording">
            <p>Write a SELECT, or begin with one of these:</p>
            <ul className="sql-examples">
              {examples.filter(isAnswerable).map((example) => (
                <li key={example.title}>
                  <button type="button" className="link" onClick={() => askExample(example)}>
                    {example.title}
                  </button>
                </li>
              ))}
            </ul>
            <p>Window and filters of the page do not apply here; use conditions.</p>
          </Empty>
        ) : query.isFetching ? (
          <Loading what="the answer" />
        ) : query.error ? (
          <Refusal error={query.error} retry={() => void query.refetch()} />
        ) : query.data ? (
          <AnswerTable {...query.data} />
        ) : (
          <Empty title="Cancelled">
            <p>The server has stopped looking for the answer.</p>
          </Empty>
        )}
      </div>
      <aside className="side" aria-label="Tables and columns">
        <Answer query={schema} what="the tables">
          {(document) => <TablesList schema={document} insert={insert} ask={ask} />}
        </Answer>
      </aside>
    </div>
  );
}

/** The error of the query, in SQLite's words; or another error. */
function Refusal({ error, retry }: { error: Error; retry: () => void }) {
  if (!(error instanceof ProblemError && error.problem.parameter === "q"))
    return <Failure error={error} retry={retry} />;
  return (
    <div className="state" role="alert">
      <h2>This query has no answer</h2>
      <p className="mono sql-error">{error.message}</p>
    </div>
  );
}

/** Counts the seconds since it is here. */
function RunningTime() {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setSeconds((before) => before + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return (
    <span className="muted">
      <span role="status">Running…</span> <span aria-hidden="true">{seconds} s</span>
    </span>
  );
}
