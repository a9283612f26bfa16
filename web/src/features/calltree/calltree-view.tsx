// The flame graph's tree, line by line: open and close, narrow rests are loaded when they are opened.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Flamegraph } from "../../api/types.ts";
import { buildTree, everyNode, type FlameNode, nodeName, stackOf } from "../../lib/flame-tree.ts";
import { formatExact, formatPercent, formatValue, plural } from "../../lib/format.ts";
import { identityOf, isChosen } from "../../lib/identity.ts";
import { bareName, location, shortName } from "../../lib/names.ts";
import { readPattern } from "../../lib/pattern.ts";
import { stackText } from "../../lib/stack.ts";
import { Button, Segmented, Share } from "../../ui/controls.tsx";
import { downloadCsv, LitRow } from "../../ui/data-table.tsx";
import { useFunctionMenu } from "../../ui/function-menu.ts";
import { useMatchKeys } from "../../ui/match-keys.ts";
import { below, isMenuKey, type MenuItem, useMenu } from "../../ui/menu.tsx";
import { useCopy, useNotice } from "../../ui/notice.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { Answer, Empty } from "../../ui/states.tsx";
import { ViewBar } from "../../ui/view-bar.tsx";
import { ALL, readOpen, writeOpen } from "./open-lines.ts";
import { heaviestPath, keyOf, matchesIn, pathTo, type TreeLine, visibleLines } from "./rows.ts";
import { ALL_ROWS, foldedIn, treeColumns, treeRows } from "./tree-csv.ts";
import "./calltree.css";

const ROW = 24;
// A line is as high as any other, however little it holds: what counts is how many there are.
const ASK = { min_px: 0, max_nodes: 2000 } as const;
const ASK_FINER = { min_px: 0, max_nodes: 8000 } as const;

export function CallTreeView() {
  const { search, subject, go } = usePage();
  const request = useRequest();
  const client = useQueryClient();
  const notice = useNotice();
  const query = useQuery(
    documentQuery(subject, "flamegraph", {
      ...request.metric,
      ...request.filters,
      inverted: search.inverted,
      root: search.root,
      ...ASK,
    }),
  );
  const save = async () => {
    try {
      const document = await client.fetchQuery(
        documentQuery(subject, "flamegraph", {
          ...request.metric,
          ...request.filters,
          inverted: search.inverted,
          root: search.root,
          ...ALL_ROWS,
        }),
      );
      const rows = treeRows(document);
      downloadCsv(treeColumns(document), rows, "calltree.csv");
      const folded = foldedIn(rows);
      if (folded > 0) notice(`${plural(folded, "smaller function")} are summed up in rows that say so.`);
    } catch (error) {
      notice(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <div className="table-view">
      <ViewBar>
        <Segmented
          label="Direction"
          value={search.inverted ? "up" : "down"}
          choices={[
            { value: "down", label: "Top down", title: "From the program's entry to what allocates" },
            { value: "up", label: "Bottom up", title: "From what allocates to its callers" },
          ]}
          onChange={(value) =>
            go({ inverted: value === "up" ? true : undefined, root: undefined, open: undefined, row: undefined })
          }
        />
        {search.root !== undefined && (
          <Button onClick={() => go({ root: undefined, open: undefined, row: undefined })} title="The whole tree">
            Back to the whole tree
          </Button>
        )}
        {query.data && (
          <span className="muted">
            {query.data.metric} total <b className="strong">{formatValue(query.data.total, query.data.unit)}</b>
          </span>
        )}
        <span className="spring" />
        <Button
          quiet
          title="The whole tree, closed branches included, one row for each line"
          onClick={() => void save()}
        >
          CSV
        </Button>
      </ViewBar>
      <Answer query={query} what="the call tree">
        {(document) => <Loaded key={`${document.inverted} ${search.root ?? ""}`} document={document} />}
      </Answer>
    </div>
  );
}

function Loaded({ document }: { document: Flamegraph }) {
  const { search, subject, go } = usePage();
  const request = useRequest();
  const client = useQueryClient();
  const notice = useNotice();
  const openMenu = useMenu();
  const copy = useCopy();
  const functionMenu = useFunctionMenu();
  const scroller = useRef<HTMLDivElement>(null);
  const tree = useMemo(() => buildTree(document), [document]);
  const [open, setOpen] = useState<ReadonlySet<string>>(() => openAtFirst(tree, search.open, search.selected));
  // The address has what the reader opened and closed; back and forward, and a link, bring it here.
  const written = useRef(search.open);
  useEffect(() => {
    if (search.open === written.current) return;
    written.current = search.open;
    setOpen(openAtFirst(tree, search.open, search.selected));
  }, [search.open, search.selected, tree]);
  const changeOpen = (next: ReadonlySet<string>, text = writeOpen(next)) => {
    setOpen(next);
    written.current = text;
    go({ open: text }, { replace: true });
  };
  const asked = useRef(new Set<string>());
  const [more, setMore] = useState<ReadonlyMap<number, readonly FlameNode[]>>(new Map());
  useEffect(() => {
    // Other figures: what was loaded for the old ones does not hold any more.
    if (document) setMore(new Map());
    asked.current = new Set();
  }, [document]);

  const lines = useMemo(() => (tree ? visibleLines(tree, open, more) : []), [tree, open, more]);
  const loadRest = async ({ key, node }: TreeLine) => {
    try {
      const answer = await client.fetchQuery(
        documentQuery(subject, "flamegraph", {
          ...request.metric,
          ...request.filters,
          inverted: search.inverted,
          root: node.parent?.parent ? node.id : search.root,
          ...ASK_FINER,
        }),
      );
      const finer = buildTree(answer);
      const id = node.parent?.id;
      if (finer && id !== undefined) setMore((before) => new Map(before).set(id, finer.children));
    } catch (error) {
      asked.current.delete(key);
      setOpen((before) => new Set([...before].filter((known) => known !== key)));
      notice(error instanceof Error ? error.message : "The rest could not be loaded.");
    }
  };
  useEffect(() => {
    // An open rest that is still a line is being loaded, or is requested now.
    for (const line of lines) {
      if (line.node.folded === 0 || !line.open || asked.current.has(line.key)) continue;
      asked.current.add(line.key);
      void loadRest(line);
    }
  });
  const pattern = useMemo(() => readPattern(search.q ?? ""), [search.q]);
  const matches = useMemo(
    () => (tree && pattern.kind === "valid" ? matchesIn(tree, pattern.test) : undefined),
    [tree, pattern],
  );
  useEffect(() => {
    // What is searched is opened, wherever it is.
    if (matches && matches.nodes.length > 0) setOpen((before) => new Set([...before, ...matches.open]));
  }, [matches]);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW,
    overscan: 15,
  });

  const firstSelected = useRef(firstLine(lines, search.row, search.selected));
  const [focused, setFocused] = useState(Math.max(0, firstSelected.current));
  useEffect(() => {
    // What was selected in another view is brought into sight, once.
    if (firstSelected.current > 0) virtual.scrollToIndex(firstSelected.current, { align: "center" });
    firstSelected.current = -1;
  }, [virtual]);

  const stepToMatch = useRef<(by: 1 | -1) => void>(() => undefined);
  useMatchKeys((by) => stepToMatch.current(by));

  if (!tree || tree.weight === 0) {
    stepToMatch.current = () => undefined;
    return (
      <Empty title="Nothing to show">
        <p>No block in this window passes the filters under “{document.metric}”.</p>
        <p>Choose another metric, widen the window (double click on the timeline), or remove a filter.</p>
      </Empty>
    );
  }
  const current = Math.min(focused, lines.length - 1);

  const focus = (index: number) => {
    const next = Math.max(0, Math.min(lines.length - 1, index));
    setFocused(next);
    virtual.scrollToIndex(next);
    // Who steps through matches from the search stays there.
    if (globalThis.document.activeElement?.matches("input[type=search]")) return;
    requestAnimationFrame(() => scroller.current?.querySelector<HTMLElement>(`[data-index="${next}"]`)?.focus());
  };
  const isMatch = (line: TreeLine | undefined) =>
    line?.node.frame != null && pattern.kind === "valid" && pattern.test(line.node.frame.name);
  const toMatch = (step: 1 | -1) => {
    for (let i = 1; i <= lines.length; i += 1) {
      const at = (current + step * i + lines.length * 2) % lines.length;
      if (isMatch(lines[at])) {
        focus(at);
        return;
      }
    }
  };
  stepToMatch.current = toMatch;
  const openAll = () => {
    changeOpen(everyLine(tree), ALL);
  };
  const toggle = (line: TreeLine) => {
    if (line.node.folded > 0) {
      changeOpen(new Set([...open, line.key]));
      return;
    }
    const next = new Set(open);
    if (line.open) next.delete(line.key);
    else next.add(line.key);
    changeOpen(next);
  };
  const menuOf = (line: TreeLine): MenuItem[] => [
    {
      label: line.open ? "Close" : "Open",
      hint: line.open ? "←" : "→",
      run: () => toggle(line),
      disabled: !line.canOpen,
    },
    {
      label: "Start the tree here",
      run: () => go({ root: line.node.id, open: undefined, row: undefined }),
      disabled: line.node.folded > 0 || !line.node.parent,
    },
    ...(line.node.frame
      ? ([
          "separator",
          ...functionMenu({ ...line.node.frame, stack: stackOf(line.node, document) }),
        ] satisfies MenuItem[])
      : []),
  ];

  const onKeyDown = (event: KeyboardEvent) => {
    const line = lines[current];
    if (!line || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 300) / ROW) - 2);
    if (isMenuKey(event)) openMenu(below(event.target as Element), menuOf(line));
    else if (event.key === "ArrowDown") focus(current + 1);
    else if (event.key === "ArrowUp") focus(current - 1);
    else if (event.key === "PageDown") focus(current + page);
    else if (event.key === "PageUp") focus(current - page);
    else if (event.key === "Home") focus(0);
    else if (event.key === "End") focus(lines.length - 1);
    else if (event.key === "ArrowRight" && line.canOpen && !line.open) toggle(line);
    else if (event.key === "ArrowRight") focus(current + 1);
    else if (event.key === "ArrowLeft" && line.open) toggle(line);
    else if (event.key === "ArrowLeft")
      focus(lines.findLastIndex((above, i) => i < current && above.depth < line.depth));
    else if (event.key === "Enter" && line.canOpen) toggle(line);
    else if (event.key === "*") openAll();
    else if (event.key === "c") copy(stackText(stackOf(line.node, document)), "the stack");
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <>
      {matches && (
        <div className="view-bar" data-testid="matches">
          <output>
            {matches.nodes.length === 0
              ? "No line matches"
              : `${plural(matches.nodes.length, "line matches", "lines match")}, ${formatValue(matches.value, document.unit)} (${formatPercent(matches.value / document.total)}) in stacks with a match`}
            {pattern.kind === "valid" && pattern.text !== pattern.text.toLowerCase() && " · capitals matter"}
          </output>
          <Button
            quiet
            disabled={matches.nodes.length === 0}
            title="Previous match (Shift+n)"
            onClick={() => toMatch(-1)}
          >
            ↑
          </Button>
          <Button quiet disabled={matches.nodes.length === 0} title="Next match (n)" onClick={() => toMatch(1)}>
            ↓
          </Button>
        </div>
      )}
      <div
        ref={scroller}
        className="table calltree"
        role="treegrid"
        aria-label="Call tree"
        tabIndex={-1}
        onKeyDown={onKeyDown}
      >
        <div className="table-head" role="rowgroup">
          <div role="row" className="table-row">
            {HEADERS.map(({ text, definition, numeric }) => (
              <div key={text} role="columnheader" className={numeric ? "cell numeric" : "cell"} title={definition}>
                {text}
              </div>
            ))}
          </div>
        </div>
        <div role="rowgroup" className="table-body" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const line = lines[item.index];
            if (!line) return null;
            const { node } = line;
            const name = node.folded > 0 ? plural(node.folded, "smaller function") : nodeName(node);
            return (
              <LitRow
                key={line.key}
                functions={functionsOf(node)}
                role="row"
                className="table-row"
                aria-level={line.depth + 1}
                aria-expanded={line.canOpen ? line.open : undefined}
                aria-selected={isChosen(node.frame, search.selected)}
                data-index={item.index}
                data-current={(pattern.kind === "valid" && item.index === current) || undefined}
                data-match={(pattern.kind === "valid" && node.frame && pattern.test(node.frame.name)) || undefined}
                tabIndex={item.index === current ? 0 : -1}
                style={{ height: ROW, transform: `translateY(${item.start}px)` }}
                onFocus={() => setFocused(item.index)}
                onClick={() =>
                  node.frame &&
                  go(
                    { selected: identityOf(node.frame), row: node.folded > 0 ? undefined : String(node.id) },
                    { replace: true },
                  )
                }
                onDoubleClick={() => line.canOpen && toggle(line)}
                onContextMenu={(event) => {
                  event.preventDefault();
                  openMenu({ x: event.clientX, y: event.clientY }, menuOf(line));
                }}
              >
                <Cell numeric title={formatExact(node.value, document.unit)}>
                  {formatValue(node.value, document.unit)}
                </Cell>
                <Cell numeric>
                  <Share part={Math.abs(node.value / document.total)}>
                    {formatPercent(node.value / document.total)}
                  </Share>
                </Cell>
                <Cell numeric title={formatExact(node.own, document.unit)}>
                  {node.own === 0 ? "" : formatValue(node.own, document.unit)}
                </Cell>
                <Cell>
                  <span className="tree-name" style={{ paddingLeft: Math.min(line.depth, 60) * 12 }}>
                    <button
                      type="button"
                      className="twisty"
                      tabIndex={-1}
                      aria-hidden="true"
                      data-none={!line.canOpen || undefined}
                      onClick={(event) => {
                        event.stopPropagation();
                        toggle(line);
                      }}
                    >
                      {line.canOpen ? (line.open ? "▾" : "▸") : ""}
                    </button>
                    <span className={node.folded > 0 ? "muted" : "mono"} title={shortName(name, 400)}>
                      {node.folded > 0 ? name : bareName(name, 160)}
                    </span>
                    {node.frame?.inlined && <span className="badge">inlined</span>}
                    <span className="muted">{location(node.frame?.file, node.frame?.line) ?? node.frame?.module}</span>
                  </span>
                </Cell>
              </LitRow>
            );
          })}
        </div>
      </div>
    </>
  );
}

/** What is open before the reader opens anything: as the address says, else the way that the weight takes. */
function openAtFirst(tree: FlameNode | undefined, text: string | undefined, selected: string | undefined) {
  if (!tree) return new Set<string>();
  if (text === ALL) return everyLine(tree);
  return readOpen(text) ?? new Set([...heaviestPath(tree), ...(selected === undefined ? [] : pathTo(tree, selected))]);
}

/** All lines that can be open, as far as a screen reader and a browser are served well. */
function everyLine(tree: FlameNode): Set<string> {
  const all = [...everyNode(tree)].filter((node) => node.children.length > 0).slice(0, 5000);
  return new Set(all.map(keyOf));
}

/** The line that the address names, else the first of the selected function. */
function firstLine(lines: readonly TreeLine[], row: string | undefined, selected: string | undefined): number {
  const named = row === undefined ? -1 : lines.findIndex(({ key }) => key === row);
  return named >= 0 ? named : lines.findIndex(({ node }) => isChosen(node.frame, selected));
}

/** The same list for the same node, so that a row is drawn again only when it is lit. */
const functionLists = new WeakMap<FlameNode, readonly string[]>();

function functionsOf(node: FlameNode): readonly string[] {
  let list = functionLists.get(node);
  if (!list) {
    list = node.frame ? [node.frame.name] : [];
    functionLists.set(node, list);
  }
  return list;
}

const HEADERS = [
  { text: "Total", definition: "Of this line and everything under it", numeric: true },
  { text: "%", definition: "Total as a part of everything in this window and filter", numeric: true },
  { text: "Self", definition: "Allocated by this function itself, called this way", numeric: true },
  { text: "Function", definition: "→ opens, ← closes, * opens all, n goes to the next match", numeric: false },
] as const;

function Cell({ numeric, title, children }: { numeric?: boolean; title?: string; children: React.ReactNode }) {
  return (
    <div role="gridcell" className={numeric ? "cell numeric" : "cell"} title={title}>
      {children}
    </div>
  );
}
