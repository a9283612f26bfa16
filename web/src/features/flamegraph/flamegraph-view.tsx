// The flame graph: who put there what is (or was) in memory.
import { useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Flamegraph } from "../../api/types.ts";
import type { Theme } from "../../lib/colors.ts";
import {
  buildTree,
  collapseRecursion,
  everyNode,
  type FlameNode,
  findMatches,
  neighbour,
  stackOf,
} from "../../lib/flame-tree.ts";
import { formatPercent, formatValue } from "../../lib/format.ts";
import { readPattern, serverPattern } from "../../lib/pattern.ts";
import { stackText } from "../../lib/stack.ts";
import { Button } from "../../ui/controls.tsx";
import { Chart, type ChartHandle } from "../../ui/flame/chart.tsx";
import { colorOf, descriptionOf } from "../../ui/flame/coloring.ts";
import { FoldedNote } from "../../ui/flame/folded-note.tsx";
import { useFunctionMenu } from "../../ui/function-menu.ts";
import { below, isMenuKey, type MenuItem, useMenu } from "../../ui/menu.tsx";
import { useCopy } from "../../ui/notice.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { Answer, Empty } from "../../ui/states.tsx";
import { useTheme } from "../../ui/theme.ts";
import { useWidth } from "../../ui/use-size.ts";
import { Ancestors } from "./ancestors.tsx";
import { Details } from "./details.tsx";
import { FrameTip } from "./frame-tip.tsx";
import { pictureOf, saveFile, savePng } from "./picture.ts";
import { Sandwich } from "./sandwich.tsx";
import "../../ui/flame/flame.css";

/** What the server is asked for at most; d3-flame-graph stays quick up to here. */
const MAX_NODES = 2000;
/** A frame narrower than this is folded into its parent's rest. */
const MIN_PX = 1;
/** While the window is dragged: a fifth of the frames, in a fifth of the time. */
const PREVIEW = { min_px: 3, max_nodes: 400 } as const;
/** After a click on a folded rest that has nowhere to zoom to. */
const FINE_PX = 0.2;

export function FlamegraphView() {
  const { search } = usePage();
  return search.sandwich === undefined ? <WholeGraph /> : <Sandwich key={search.sandwich} of={search.sandwich} />;
}

function WholeGraph() {
  const { search, subject, brushing } = usePage();
  const request = useRequest();
  const host = useRef<HTMLDivElement>(null);
  const width = useWidth(host);
  const askedWidth = Math.max(200, Math.round(width / 100) * 100);
  const [fine, setFine] = useState<number | null>(null);
  const isFine = fine !== null && fine === (search.root ?? -1);
  const query = useQuery({
    ...documentQuery(subject, "flamegraph", {
      ...request.metric,
      ...request.filters,
      inverted: search.inverted,
      root: search.root,
      width: askedWidth,
      min_px: isFine ? FINE_PX : MIN_PX,
      max_nodes: MAX_NODES,
      ...(brushing ? PREVIEW : {}),
    }),
    enabled: width > 0,
  });
  return (
    <div ref={host} className="flame-view">
      <Answer query={query} what="the flame graph">
        {(document) => <Loaded document={document} width={width} askFiner={() => setFine(search.root ?? -1)} />}
      </Answer>
    </div>
  );
}

interface LoadedProps {
  document: Flamegraph;
  width: number;
  askFiner: () => void;
}

function Loaded({ document, width, askFiner }: LoadedProps) {
  const { search, go } = usePage();
  const theme = useTheme();
  const openMenu = useMenu();
  const copy = useCopy();
  const functionMenu = useFunctionMenu();
  const chart = useRef<ChartHandle>(null);
  const [hover, setHover] = useState<{ node: FlameNode; x: number; y: number } | null>(null);
  const [activeRow, setActiveRow] = useState(0);

  const tree = useMemo(() => {
    const built = buildTree(document);
    return built && search.collapse ? collapseRecursion(built) : built;
  }, [document, search.collapse]);
  const byRow = useMemo(() => new Map(tree ? [...everyNode(tree)].map((node) => [node.row, node]) : []), [tree]);
  const pattern = useDeferredValue(search.q ?? "");
  const matches = useMemo(() => {
    const read = readPattern(pattern);
    return tree && read.kind === "valid" ? findMatches(tree, read.test) : undefined;
  }, [tree, pattern]);
  useEffect(() => {
    // A new tree: the keyboard starts at its root again.
    if (tree) setActiveRow(0);
    setHover(null);
  }, [tree]);

  const paint = useMemo(() => (theme: Theme) => (tree ? colorOf(tree, document, theme) : () => ""), [tree, document]);
  const describe = useMemo(() => descriptionOf(document), [document]);

  const active = byRow.get(activeRow) ?? tree;
  if (!tree || !active || document.rows.id.length === 0 || tree.weight === 0) {
    return (
      <Empty title="Nothing to draw">
        <p>No block in this window passes the filters under “{document.metric}”.</p>
        <p>Choose another metric, widen the window (double click on the timeline), or remove a filter.</p>
        {search.root !== undefined && <Button onClick={() => go({ root: undefined })}>Back to the whole tree</Button>}
      </Empty>
    );
  }

  const zoomTo = (node: FlameNode) => {
    setHover(null);
    if (node.folded > 0 && node.parent) {
      if (node.parent.parent) go({ root: node.parent.id });
      else askFiner();
    } else if (node.parent) {
      go({ root: node.id });
    } else {
      zoomOut();
    }
  };
  const zoomOut = () => {
    const above = document.ancestors.at(-1);
    if (!above) return;
    go({ root: document.ancestors.length === 1 ? undefined : above.id });
  };
  const menuOf = (node: FlameNode): MenuItem[] => [
    { label: "Zoom in", hint: "Enter", run: () => zoomTo(node), disabled: !node.parent },
    { label: "Zoom out", hint: "Backspace", run: zoomOut, disabled: document.ancestors.length === 0 },
    ...(node.frame
      ? (["separator", ...functionMenu({ ...node.frame, stack: stackOf(node, document) })] satisfies MenuItem[])
      : []),
  ];

  const onKeyDown = (event: KeyboardEvent) => {
    if (!active || event.ctrlKey || event.metaKey || event.altKey) return;
    const down = search.upwards ? "ArrowUp" : "ArrowDown";
    const up = search.upwards ? "ArrowDown" : "ArrowUp";
    const move = (to: FlameNode | undefined) => {
      if (!to) return;
      setActiveRow(to.row);
      chart.current?.element(to.row)?.scrollIntoView({ block: "nearest" });
    };
    if (isMenuKey(event)) {
      const element = chart.current?.element(active.row);
      if (element) openMenu(below(element), menuOf(active));
    } else if (event.key === down) move(neighbour(active, "callee"));
    else if (event.key === up) move(neighbour(active, "caller"));
    else if (event.key === "ArrowLeft") move(neighbour(active, "previous"));
    else if (event.key === "ArrowRight") move(neighbour(active, "next"));
    else if (event.key === "Home") move(tree);
    else if (event.key === "Enter") zoomTo(active);
    else if (event.key === "Backspace") zoomOut();
    else if (event.key === "c") copy(stackText(stackOf(active, document)), "the stack");
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <>
      <div className="flame-bar">
        <Ancestors document={document} />
        <span className="spring" />
        <SearchResult document={document} shown={matches?.rows.size} shownValue={matches?.value} />
        <Button
          on={search.inverted ?? false}
          title="Allocating functions first, their callers below (i)"
          onClick={() => go({ inverted: search.inverted ? undefined : true, root: undefined })}
        >
          Inverted
        </Button>
        <Button
          on={search.upwards ?? false}
          title="Grow upwards, like flames, instead of downwards"
          onClick={() => go({ upwards: search.upwards ? undefined : true }, { replace: true })}
        >
          Upwards
        </Button>
        <Button
          on={search.collapse ?? false}
          title="Draw direct recursion as one frame"
          onClick={() => go({ collapse: search.collapse ? undefined : true }, { replace: true })}
        >
          Collapse recursion
        </Button>
        <Button
          quiet
          aria-haspopup="menu"
          onClick={(event) =>
            openMenu(below(event.currentTarget), [
              {
                label: "Save as SVG",
                run: () => saveFile("flamegraph.svg", "image/svg+xml", pictureOf(tree, document, width, theme).svg()),
              },
              { label: "Save as PNG", run: () => savePng("flamegraph.png", pictureOf(tree, document, width, theme)) },
            ])
          }
        >
          Save picture
        </Button>
      </div>
      <FoldedNote root={tree} />
      <Chart
        ref={chart}
        name="flame"
        label={`Flame graph of ${document.metric} ${document.unit}`}
        downwards={!search.upwards}
        tree={tree}
        paint={paint}
        describe={describe}
        width={width}
        matches={matches?.rows}
        activeRow={active.row}
        onKeyDown={onKeyDown}
        onZoom={zoomTo}
        onHover={(node, at) => setHover(node ? { node, ...at } : null)}
        onMenu={(node, at) => {
          setHover(null);
          setActiveRow(node.row);
          openMenu(at, menuOf(node));
        }}
      />
      <Details node={hover?.node ?? active} document={document} root={tree} />
      {hover && <FrameTip {...hover} document={document} root={tree} />}
    </>
  );
}

interface SearchResultProps {
  document: Flamegraph;
  shown: number | undefined;
  shownValue: number | undefined;
}

/** How much matches: exact for the whole tree, by asking the server for stacks with a match. */
function SearchResult({ document, shown, shownValue }: SearchResultProps) {
  const { search, subject, report } = usePage();
  const request = useRequest();
  const pattern = readPattern(search.q ?? "");
  const canAsk = pattern.kind === "valid" && search.filters?.focus === undefined && !report;
  const query = useQuery({
    ...documentQuery(subject, "flamegraph", {
      ...request.metric,
      ...request.filters,
      focus: serverPattern(search.q ?? ""),
      width: 100,
      max_nodes: 10,
    }),
    enabled: canAsk,
    placeholderData: undefined,
  });
  if (pattern.kind !== "valid") return null;
  const exact = canAsk ? query.data?.total : undefined;
  const value = exact ?? shownValue ?? 0;
  return (
    <output className="search-result">
      {exact === undefined ? "at least " : ""}
      <b>{formatValue(value, document.unit)}</b> ({formatPercent(value / document.total)}) in stacks with a match;{" "}
      {shown ?? 0} {shown === 1 ? "frame" : "frames"} shown
    </output>
  );
}
