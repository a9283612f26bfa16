// One flame graph as it is drawn: the bar above it, the frames, the details of the frame under the pointer.
import { useCallback, useDeferredValue, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { Flamegraph } from "../../api/types.ts";
import type { Theme } from "../../lib/colors.ts";
import {
  collapseRecursion,
  type FlameNode,
  findMatches,
  nodeAtRow,
  nodeById,
  nodeWithId,
  stackOf,
} from "../../lib/flame-tree.ts";
import { identityOf } from "../../lib/identity.ts";
import { readPattern } from "../../lib/pattern.ts";
import type { PageSearch } from "../../lib/search-params.ts";
import { stackText } from "../../lib/stack.ts";
import { Button } from "../../ui/controls.tsx";
import { Chart, type ChartHandle } from "../../ui/flame/chart.tsx";
import { coloringIn, colorOf, descriptionOf } from "../../ui/flame/coloring.ts";
import { FoldedNote } from "../../ui/flame/folded-note.tsx";
import { useHoverStore } from "../../ui/flame/hover-store.ts";
import { useFunctionMenu } from "../../ui/function-menu.ts";
import { useMatchKeys } from "../../ui/match-keys.ts";
import { below, type MenuItem, useMenu } from "../../ui/menu.tsx";
import { useCopy } from "../../ui/notice.tsx";
import { FrameContext, PageSource, usePage } from "../../ui/page.ts";
import { Empty } from "../../ui/states.tsx";
import { useTheme } from "../../ui/theme.ts";
import { Ancestors } from "./ancestors.tsx";
import { FunctionTable } from "./function-table.tsx";
import { GraphOptions, nameOfGraph } from "./graph-options.tsx";
import { HoverDetails, HoverTip, type Pinned, PinnedTip } from "./hover.tsx";
import { keysOf, useHoverKeys } from "./keys.ts";
import { Legend } from "./legend.tsx";
import { pictureOf, saveFile, savePng } from "./picture.ts";
import { SearchResult } from "./search-result.tsx";
import { useTransforms } from "./transforming.ts";
import { useFollowUp } from "./zooming.ts";

interface GraphProps {
  document: Flamegraph;
  tree: FlameNode | undefined;
  /** The frame of the tree that takes the whole width. */
  zoom: FlameNode | undefined;
  width: number;
  askFiner: () => void;
  /** Requests what a zoom to a frame will need, before the zoom. */
  prepare: (node: FlameNode) => void;
}

/** The frame that the keyboard is at, and of which zoom. */
interface Kept {
  tree: FlameNode;
  row: number;
  id: number;
  zoom: number;
  inverted: boolean;
}

/** In a newer tree it stays at its frame: the tree of a running program is a new one each second. */
function keptIn(tree: FlameNode, { tree: known, row, id }: Kept): FlameNode | undefined {
  return tree === known ? nodeAtRow(tree, row) : nodeById(tree, id);
}

/** `c` collapses here; the stack is copied with what copies everywhere. */
const withOwnKey = (item: MenuItem): MenuItem =>
  item !== "separator" && "hint" in item && item.hint === "c" ? { ...item, hint: "Ctrl+C" } : item;

export function Graph({ document, tree: given, zoom: givenZoom, width, askFiner, prepare }: GraphProps) {
  const { search, go, recording, report } = usePage();
  const transforms = useTransforms();
  const theme = useTheme();
  const openMenu = useMenu();
  const copy = useCopy();
  const functionMenu = useFunctionMenu();
  const chart = useRef<ChartHandle>(null);
  const host = useRef<HTMLDivElement>(null);
  const hover = useHoverStore();
  const [pinned, setPinned] = useState<Pinned & { of: Flamegraph }>();
  const [kept, keep] = useState<Kept>();
  const latestRoot = useRef(search.root);
  latestRoot.current = search.root;

  // A report has no server that could collapse the whole tree.
  const collapse = search.collapse === true && report !== undefined;
  const tree = useMemo(() => (given && collapse ? collapseRecursion(given) : given), [given, collapse]);
  const zoom = useMemo(
    () => (tree && givenZoom && collapse ? (nodeWithId(tree, givenZoom.id) ?? tree) : (givenZoom ?? tree)),
    [tree, givenZoom, collapse],
  );
  const pattern = useDeferredValue(search.q ?? "");
  const matches = useMemo(() => {
    const read = readPattern(pattern);
    return tree && read.kind === "valid" ? findMatches(tree, read.test) : undefined;
  }, [tree, pattern]);
  const matchRows = useMemo(() => [...(matches?.rows ?? [])].sort((a, b) => a - b), [matches]);
  const inverted = search.inverted === true;
  const activate = (node: FlameNode) => {
    if (tree && zoom) keep({ tree, row: node.row, id: node.id, zoom: zoom.id, inverted });
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: what is under the pointer is of the graph from before
  useLayoutEffect(() => hover.clear(), [tree, zoom, inverted, hover]);

  const coloring = useMemo(
    () => tree && coloringIn(recording.id, tree, search.color),
    [tree, search.color, recording.id],
  );
  const by = coloring?.by;
  const paint = useMemo(
    () => (asked: Theme) => (tree ? colorOf(tree, document, asked, by) : () => ""),
    [tree, document, by],
  );
  const describe = useMemo(() => descriptionOf(document), [document]);

  // With another zoom the keyboard starts at what is shown.
  const isSame = kept !== undefined && kept.zoom === zoom?.id && kept.inverted === inverted;
  const active = (isSame && tree && keptIn(tree, kept)) || zoom;
  const moveTo = (node: FlameNode | undefined) => {
    if (!node) return;
    // From here on letters are about this frame, and not about the one under a pointer at rest.
    hover.clear();
    activate(node);
    chart.current?.reveal(node.row);
    if (search.split && node.frame) go({ selected: identityOf(node.frame) }, { replace: true });
  };
  const matchAt = active ? matchRows.indexOf(active.row) : -1;
  const step = (by: 1 | -1) => {
    if (matchRows.length === 0 || !active || !tree) return;
    // From where the keyboard is, in the order of the tree; around its end.
    const next = by > 0 ? matchRows.find((row) => row > active.row) : matchRows.findLast((row) => row < active.row);
    moveTo(nodeAtRow(tree, next ?? matchRows.at(by > 0 ? 0 : -1) ?? 0));
  };
  const latestStep = useRef(step);
  latestStep.current = step;
  const stepNow = useCallback((by: 1 | -1) => latestStep.current(by), []);
  useMatchKeys(stepNow);
  const pictures = useRef<() => MenuItem[]>(() => []);
  const picturesNow = useCallback(() => pictures.current(), []);
  const onHoverKey = useHoverKeys();
  const followUp = useFollowUp(host, tree);

  if (!tree || !zoom || !active || document.rows.id.length === 0 || tree.weight === 0) {
    return (
      <Empty title="Nothing to draw">
        <p>No block in this window passes the filters under “{document.metric}”.</p>
        <p>Choose another metric, widen the window (double click on the timeline), or remove a filter.</p>
        {search.root !== undefined && <Button onClick={() => go({ root: undefined })}>Back to the whole tree</Button>}
      </Empty>
    );
  }

  const zoomOut = () => {
    if (zoom.parent) zoomFirst(zoom.parent, { root: zoom.parent.parent ? zoom.parent.id : undefined });
  };
  const zoomTo = (node: FlameNode) => {
    hover.clear();
    if (node.folded > 0 && node.parent) {
      if (node.parent.parent && node.parent !== zoom) go({ root: node.parent.id });
      else askFiner();
    } else if (node === zoom) zoomOut();
    else zoomFirst(node, { root: node.parent ? node.id : undefined, ...selection(node) });
  };
  /** The picture moves at once; the address follows, unless somebody has gone elsewhere meanwhile. */
  const zoomFirst = (node: FlameNode, patch: Partial<PageSearch>) => {
    chart.current?.zoomTo(node);
    const run = () => {
      if (latestRoot.current === search.root) go(patch);
    };
    // On the way out there is more to see than this tree may have.
    const isInside = node.depth > zoom.depth;
    if (isInside) prepare(node);
    followUp.follow(run, isInside && chart.current?.moves() === true);
  };
  /** Beside a table, the target of a step is also selected in it. */
  const selection = (node: FlameNode) => (search.split && node.frame ? { selected: identityOf(node.frame) } : {});
  const menuOf = (node: FlameNode): MenuItem[] => [
    { label: "Zoom in", hint: "Enter", run: () => zoomTo(node), disabled: node === zoom },
    { label: "Zoom out", hint: "Backspace", run: zoomOut, disabled: !zoom.parent },
    ...(node.frame
      ? ([
          "separator",
          ...functionMenu({ ...node.frame, stack: stackOf(node, document) }).map(withOwnKey),
        ] satisfies MenuItem[])
      : []),
    ...transforms.menuOf(node),
  ];
  const pin = (node: FlameNode, at: { x: number; y: number }) => {
    setPinned({ node, at, of: document });
    hover.clear();
  };
  const pinHovered = () => {
    const node = hover.get();
    if (node) pin(node, hover.place());
    return node !== undefined;
  };
  const keys = {
    active,
    tree,
    chart: () => chart.current,
    upwards: search.upwards ?? false,
    moveTo,
    zoomTo,
    zoomOut,
    openMenu: (element: Element) => openMenu(below(element), menuOf(active)),
    copyStack: () => copy(stackText(stackOf(active, document)), "the stack"),
    pin: (element: Element) => pinHovered() || pin(active, below(element)),
    transform: (key: string, node: FlameNode) => transforms.press(key, hover.get() ?? node),
  };
  const onKeyDown = keysOf(keys);
  onHoverKey.current = (key) => {
    const node = hover.get();
    if (!node) return false;
    return key === "p" ? pinHovered() : transforms.press(key, node);
  };
  const picture = () => pictureOf(zoom, document, width, theme, by, recording.title || recording.name);
  pictures.current = () => [
    { label: "Save as SVG", run: () => saveFile("flamegraph.svg", "image/svg+xml", picture().svg()) },
    { label: "Save as PNG", run: () => savePng("flamegraph.png", picture()) },
  ];

  return (
    <>
      <div className="flame-bar">
        <Ancestors document={document} zoom={zoom} />
        <span className="spring" />
        <PageSource.Provider value={FrameContext}>
          <SearchResult document={document} matches={matches} at={matchAt} step={stepNow} />
          <GraphOptions document={document} pictures={picturesNow} />
        </PageSource.Provider>
      </div>
      <FoldedNote root={zoom} />
      <div ref={host} className="flame-host" data-split={search.split}>
        <Chart
          ref={chart}
          name="flame"
          label={nameOfGraph(document)}
          downwards={!search.upwards}
          tree={tree}
          zoom={zoom}
          paint={paint}
          describe={describe}
          width={width}
          matches={matches?.rows}
          activeRow={active.row}
          onKeyDown={onKeyDown}
          onZoom={zoomTo}
          onHover={hover.set}
          onArrive={followUp.flush}
          onMenu={(node, at) => {
            hover.clear();
            activate(node);
            openMenu(at, menuOf(node));
          }}
          onPin={pin}
        />
        {search.split && <FunctionTable />}
      </div>
      <PageSource.Provider value={FrameContext}>
        {coloring && <Legend coloring={coloring} document={document} tree={tree} theme={theme} />}
      </PageSource.Provider>
      <HoverDetails store={hover} node={active} document={document} zoom={zoom} />
      <HoverTip store={hover} document={document} zoom={zoom} />
      {pinned?.of === document && (
        <PinnedTip
          pinned={pinned}
          document={document}
          zoom={zoom}
          close={() => setPinned(undefined)}
          focus={() => host.current?.querySelector<HTMLElement>(".flame-chart")?.focus()}
        />
      )}
    </>
  );
}
