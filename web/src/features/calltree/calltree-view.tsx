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
import { LitRow } from "../../ui/data-table.tsx";
import { useFunctionMenu } from "../../ui/function-menu.ts";
import { below, isMenuKey, type MenuItem, useMenu } from "../../ui/menu.tsx";
import { useCopy, useNotice } from "../../ui/notice.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { Answer, Empty } from "../../ui/states.tsx";
import { ViewBar } from "../../ui/view-bar.tsx";
import { heaviestPath, keyOf, matchesIn, pathTo, type TreeLine, visibleLines } from "./rows.ts";
import "./calltree.css";

const ROW = 24;
// A line is as high as any other, however little it holds: what counts is how many there are.
const ASK = { min_px: 0, max_nodes: 2000 } as const;
const ASK_FINER = { min_px: 0, max_nodes: 8000 } as const;

export function CallTreeView() {
  const { search, subject, go } = usePage();
  const request = useRequest();
  const query = useQuery(
    documentQuery(subject, "flamegraph", {
      ...request.metric,
      ...request.filters,
      inverted: search.inverted,
      root: search.root,
      ...ASK,
    }),
  );
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
          onChange={(value) => go({ inverted: value === "up" ? true : undefined, root: undefined })}
        />
        {search.root !== undefined && (
          <Button onClick={() => go({ root: undefined })} title="The whole tree">
            Back to the whole tree
          </Button>
        )}
        {query.data && (
          <span className="muted">
            {query.data.metric} total <b className="strong">{formatValue(query.data.total, query.data.unit)}</b>
          </span>
        )}
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
  const [open, setOpen] = useState<ReadonlySet<string>>(() => {
    if (!tree) return new Set();
    const toSelected = search.selected === undefined ? [] : pathTo(tree, search.selected);
    return new Set([...heaviestPath(tree), ...toSelected]);
  });
  const [more, setMore] = useState<ReadonlyMap<number, readonly FlameNode[]>>(new Map());
  const [focused, setFocused] = useState(0);
  useEffect(() => {
    // Other figures: what was loaded for the old ones does not hold any more.
    if (document) setMore(new Map());
  }, [document]);

  const lines = useMemo(() => (tree ? visibleLines(tree, open, more) : []), [tree, open, more]);
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

  const firstSelected = useRef(lines.findIndex(({ node }) => isChosen(node.frame, search.selected)));
  useEffect(() => {
    // What was selected in another view is brought into sight, once.
    if (firstSelected.current > 0) virtual.scrollToIndex(firstSelected.current, { align: "center" });
    firstSelected.current = -1;
  }, [virtual]);

  if (!tree || tree.weight === 0) {
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
  const openAll = () => {
    // As far as a screen reader and a browser are served well.
    const all = [...everyNode(tree)].filter((node) => node.children.length > 0).slice(0, 5000);
    setOpen(new Set(all.map(keyOf)));
  };
  const toggle = (line: TreeLine) => {
    if (line.node.folded > 0) {
      void loadRest(line.node);
      return;
    }
    const next = new Set(open);
    if (line.open) next.delete(line.key);
    else next.add(line.key);
    setOpen(next);
  };
  const loadRest = async (rest: FlameNode) => {
    try {
      const asked = rest.parent?.parent ? rest.id : search.root;
      const answer = await client.fetchQuery(
        documentQuery(subject, "flamegraph", {
          ...request.metric,
          ...request.filters,
          inverted: search.inverted,
          root: asked,
          ...ASK_FINER,
        }),
      );
      const finer = buildTree(answer);
      if (finer && rest.parent) setMore(new Map(more).set(rest.parent.id, finer.children));
    } catch (error) {
      notice(error instanceof Error ? error.message : "The rest could not be loaded.");
    }
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
      run: () => go({ root: line.node.id }),
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
    else if (event.key === "n" || event.key === "N") toMatch(event.shiftKey ? -1 : 1);
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
                data-match={(pattern.kind === "valid" && node.frame && pattern.test(node.frame.name)) || undefined}
                tabIndex={item.index === current ? 0 : -1}
                style={{ height: ROW, transform: `translateY(${item.start}px)` }}
                onFocus={() => setFocused(item.index)}
                onClick={() => node.frame && go({ selected: identityOf(node.frame) }, { replace: true })}
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
