// A source file with sums for each line, where the server's machine can read it.
import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Source } from "../../api/types.ts";
import { formatExact, formatPercent, formatValue } from "../../lib/format.ts";
import { Button, Share } from "../../ui/controls.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { MatchCount, useSearch } from "../../ui/search.tsx";
import { Answer, Empty } from "../../ui/states.tsx";
import { FileList } from "./file-list.tsx";
import { editorLink, sourceFilters, sourceLines } from "./lines.ts";
import "./source.css";

const ROW = 19;
const TEMPLATE_KEY = "heaptrace.editor";

export function SourceView() {
  const { search, subject } = usePage();
  const request = useRequest();
  const query = useQuery({
    ...documentQuery(subject, "source", { ...request.metric, ...sourceFilters(request.filters), file: search.file }),
    enabled: search.file !== undefined,
  });
  if (search.file === undefined) return <FileList />;
  return (
    <Answer query={query} what="the source file">
      {(source) => <Loaded key={source.file} source={source} />}
    </Answer>
  );
}

function Loaded({ source }: { source: Source }) {
  const { search, go } = usePage();
  const scroller = useRef<HTMLDivElement>(null);
  const [template, setTemplate] = useEditorTemplate();
  const { rows, total } = useMemo(() => sourceLines(source), [source]);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW,
    overscan: 30,
  });
  const find = useSearch();
  const found = useMemo(
    () => (find.active ? rows.flatMap((row, at) => (find.hit(row.text) ? [at] : [])) : []),
    [rows, find],
  );
  const toMatch = (step: 1 | -1) => {
    const at = rows.findIndex((row) => row.line === search.line);
    const next =
      step > 0 ? (found.find((one) => one > at) ?? found[0]) : (found.findLast((one) => one < at) ?? found.at(-1));
    const line = next === undefined ? undefined : rows[next]?.line;
    if (line !== undefined) go({ line }, { replace: true });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.key.toLowerCase() !== "n" || found.length === 0) return;
    toMatch(event.shiftKey ? -1 : 1);
    event.preventDefault();
    event.stopPropagation();
  };
  const wanted = rows.findIndex((row) => row.line === search.line);
  useEffect(() => {
    if (wanted >= 0) virtual.scrollToIndex(wanted, { align: "center" });
  }, [wanted, virtual]);
  return (
    <div className="source-view">
      <div className="view-bar">
        <Button quiet onClick={() => go({ file: undefined, line: undefined })}>
          ‹ All files
        </Button>
        <b className="mono">{source.file}</b>
        <span className="muted">
          {source.metric}, flat in this file <b className="strong">{formatValue(total, source.unit)}</b>
        </span>
        {source.note && <span className="warn">{source.note}</span>}
        <MatchCount search={find} shown={found.length} of={rows.length} what="lines" />
        {find.active && (
          <>
            <Button quiet disabled={found.length === 0} title="Previous match (Shift+n)" onClick={() => toMatch(-1)}>
              ↑
            </Button>
            <Button quiet disabled={found.length === 0} title="Next match (n)" onClick={() => toMatch(1)}>
              ↓
            </Button>
          </>
        )}
        <span className="spring" />
        <label className="editor-template">
          <span className="muted">Editor link</span>
          <input
            value={template}
            placeholder="vscode://file/%f:%l"
            title="%f stands for the file, %l for the line; empty for no links. Kept in this browser."
            onChange={(event) => setTemplate(event.target.value)}
          />
        </label>
      </div>
      {rows.length === 0 ? (
        <Empty title="No line of this file allocated">
          <p>
            Nothing in this window and filter has a frame in it
            {source.text == null ? ", and its text cannot be shown" : ""}.
          </p>
        </Empty>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached with the keyboard
        <section ref={scroller} className="source-lines" aria-label="Lines" tabIndex={0} onKeyDown={onKeyDown}>
          <div className="source-head muted">
            <span className="numeric">Flat</span>
            <span className="numeric">Cum</span>
            <span className="numeric">Line</span>
            <span>{source.text == null ? "only lines that allocated: the text is not here" : "Text"}</span>
          </div>
          <div className="source-text" style={{ height: virtual.getTotalSize() }}>
            {virtual.getVirtualItems().map((item) => {
              const row = rows[item.index];
              if (!row) return null;
              const link = editorLink(template, source.file, row.line);
              return (
                <div
                  key={row.line}
                  className="source-line"
                  data-on={row.line === search.line || undefined}
                  data-match={(find.active && find.hit(row.text)) || undefined}
                  style={{ transform: `translateY(${item.start}px)`, height: ROW }}
                >
                  <span
                    className="numeric"
                    title={
                      row.flat === 0 ? undefined : `${formatExact(row.flat, source.unit)}, allocated by the line itself`
                    }
                  >
                    {row.flat === 0 ? "" : formatValue(row.flat, source.unit)}
                  </span>
                  <span
                    className="numeric"
                    title={
                      row.cum === 0
                        ? undefined
                        : `${formatExact(row.cum, source.unit)}, with the line anywhere on the stack`
                    }
                  >
                    {row.cum === 0 ? "" : <Share part={row.part}>{formatValue(row.cum, source.unit)}</Share>}
                  </span>
                  <span
                    className="numeric muted"
                    title={row.cum === 0 ? undefined : `${formatPercent(row.part)} of the heaviest line`}
                  >
                    {link ? <a href={link}>{row.line}</a> : row.line}
                  </span>
                  <code>{row.text}</code>
                </div>
              );
            })}
          </div>
        </section>
      )}
    </div>
  );
}

function useEditorTemplate(): [string, (template: string) => void] {
  const [template, setTemplate] = useState(() => {
    try {
      return localStorage.getItem(TEMPLATE_KEY) ?? "";
    } catch {
      return "";
    }
  });
  return [
    template,
    (next) => {
      setTemplate(next);
      try {
        localStorage.setItem(TEMPLATE_KEY, next);
      } catch {
        // Storage may be forbidden; the choice then lasts as long as the page.
      }
    },
  ];
}
