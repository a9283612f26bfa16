// Two sides as one flame graph: red grew, blue shrank, and a sign says it without colours.
import { type QueryKey, useQuery } from "@tanstack/react-query";
import {
  type KeyboardEvent,
  useDeferredValue,
  useEffect,
  useMemo,
  useRef,
  useState,
  useSyncExternalStore,
} from "react";
import { type Parameters, ProblemError } from "../../api/client.ts";
import { documentQuery } from "../../api/queries.ts";
import type { DiffFlamegraph } from "../../api/types.ts";
import { changeColor, restColor, type Theme } from "../../lib/colors.ts";
import { buildDiffTree, type FlameNode, findMatches, neighbour, nodeAtRow, nodeName } from "../../lib/flame-tree.ts";
import { formatExact, formatSigned, formatValue } from "../../lib/format.ts";
import { isOfMoment } from "../../lib/moment.ts";
import { location, shortName } from "../../lib/names.ts";
import { readPattern } from "../../lib/pattern.ts";
import { pagesOf } from "../../lib/pins.ts";
import { plainTypes } from "../../lib/plain-types.ts";
import { Button, Segmented } from "../../ui/controls.tsx";
import { boxLabel } from "../../ui/flame/box-text.ts";
import { Chart, type ChartHandle } from "../../ui/flame/chart.tsx";
import { FoldedNote } from "../../ui/flame/folded-note.tsx";
import { type HoverStore, useHoverStore } from "../../ui/flame/hover-store.ts";
import { Tip } from "../../ui/flame/tip.tsx";
import { useFunctionMenu } from "../../ui/function-menu.ts";
import { below, isMenuKey, type MenuItem, useMenu } from "../../ui/menu.tsx";
import { usePage } from "../../ui/page.ts";
import { Answer, Empty } from "../../ui/states.tsx";
import { useWidth } from "../../ui/use-size.ts";
import { changeText, KIND_TEXT, kindOf } from "./change.ts";
import { ScaledNote } from "./scaled-note.tsx";
import "../../ui/flame/flame.css";

interface DiffGraphProps {
  /** The two sides, as the server wants them. */
  sides: Parameters;
  filters: Parameters;
  /** Names of the sides. */
  before: string | undefined;
  after: string | undefined;
}

export function DiffGraph({ sides, filters, before, after }: DiffGraphProps) {
  const { search, subject, go } = usePage();
  const host = useRef<HTMLDivElement>(null);
  const width = useWidth(host);
  const query = useQuery<DiffFlamegraph, Error, DiffFlamegraph, QueryKey>({
    ...documentQuery(subject, "diff/flamegraph", {
      ...sides,
      ...filters,
      ...(search.pinned && isOfMoment(sides["metric"] ?? "live")
        ? { pinned: true, pin_unit: search.pin_unit, unit: "bytes" }
        : {}),
      width_of: search.changes ? "change" : "larger",
      inverted: search.inverted,
      root: search.root,
      width: Math.max(200, Math.round(width / 100) * 100),
      min_px: 1,
      max_nodes: 2000,
    }),
    enabled: width > 0,
  });
  const lostRoot = query.error instanceof ProblemError && query.error.problem.parameter === "root";
  return (
    <div ref={host} className="flame-view">
      {lostRoot ? (
        <Empty title="The function that the graph started from is on neither side">
          <Button onClick={() => go({ root: undefined })}>Back to the whole tree</Button>
        </Empty>
      ) : (
        <Answer query={query} what="the difference">
          {(document) => (
            <Loaded
              document={{ ...document, before: before ?? document.before, after: after ?? document.after }}
              width={width}
            />
          )}
        </Answer>
      )}
    </div>
  );
}

/** Red and blue by how much of the larger side has changed. */
const paint = (theme: Theme) => (node: FlameNode) =>
  node.sides && node.folded === 0
    ? changeColor(node.value, Math.max(node.sides.before, node.sides.after), theme)
    : restColor(theme);

/** A name with the sign of its change. */
const write = (node: FlameNode): string => {
  const kind = node.sides && kindOf(node.sides.before, node.sides.after);
  const name = boxLabel(nodeName(node), node.frame?.file);
  return kind === undefined ? name : `${KIND_TEXT[kind].sign} ${name}`;
};

function Loaded({ document, width }: { document: DiffFlamegraph; width: number }) {
  const { search, go } = usePage();
  const openMenu = useMenu();
  const functionMenu = useFunctionMenu();
  const chart = useRef<ChartHandle>(null);
  const hover = useHoverStore();
  const [activeRow, setActiveRow] = useState(0);
  const { unit } = document;

  const tree = useMemo(() => buildDiffTree(document), [document]);
  const pattern = useDeferredValue(search.q ?? "");
  const matches = useMemo(() => {
    const read = readPattern(pattern);
    return tree && read.kind === "valid" ? findMatches(tree, read.test) : undefined;
  }, [tree, pattern]);
  useEffect(() => {
    if (tree) setActiveRow(0);
    hover.clear();
  }, [tree, hover]);
  const describe = useMemo(
    () => (node: FlameNode) =>
      node.sides
        ? `${shortName(nodeName(node), 200)}, ${formatValue(node.sides.before, unit)} before, ${formatValue(node.sides.after, unit)} after, ${changeText(node.sides.before, node.sides.after)}`
        : nodeName(node),
    [unit],
  );

  const active = (tree && nodeAtRow(tree, activeRow)) ?? tree;
  const bar = (
    <div className="flame-bar">
      {document.ancestors.length > 0 && (
        <Button onClick={() => go({ root: undefined })} title="The whole tree">
          ‹ all
        </Button>
      )}
      <span>
        <span className="muted">{document.before}</span> <b>{formatValue(document.total_before, unit)}</b>
      </span>
      <span>
        <span className="muted">{document.after}</span> <b>{formatValue(document.total_after, unit)}</b>
      </span>
      <b
        className={
          document.total_after > document.total_before
            ? "grew"
            : document.total_after < document.total_before
              ? "shrank"
              : "muted"
        }
      >
        {formatSigned(document.total_after - document.total_before, unit)}
      </b>
      <ScaledNote factor={document.scaled_by} />
      <span className="spring" />
      <span className="diff-legend" aria-hidden="true" title="A change as a part of the larger side">
        <span>
          <i data-kind="gone" />▼ gone, −100%
        </span>
        <span>
          <i data-kind="shrank" />▼ shrank
        </span>
        <span>
          <i />
          same
        </span>
        <span>
          <i data-kind="grew" />▲ grew
        </span>
        <span>
          <i data-kind="new" />▲ new, +100%
        </span>
      </span>
      <Button
        on={search.inverted === true}
        title="Allocating functions first, their callers below (i)"
        onClick={() => go({ inverted: search.inverted ? undefined : true, root: undefined })}
      >
        Inverted
      </Button>
      {isOfMoment(document.metric) && (
        <Button
          on={document.pinned}
          title="Resident pages, in bytes, that only the functions below hold, on both sides"
          onClick={() => go({ pinned: document.pinned ? undefined : true, root: undefined })}
        >
          Pinned pages
        </Button>
      )}
      <Segmented
        label="Frames are as wide as"
        value={search.changes ? "change" : "larger"}
        choices={[
          { value: "larger", label: "All", title: "Frames are as wide as their larger side" },
          { value: "change", label: "Changes", title: "Frames are as wide as what changed in them" },
        ]}
        onChange={(value) => go({ changes: value === "change" ? true : undefined }, { replace: true })}
      />
    </div>
  );
  if (!tree || !active || tree.weight === 0) {
    return (
      <>
        {bar}
        <Empty title="Nothing to draw">
          <p>
            {search.changes
              ? "Both sides are the same, as far as the filters let blocks through."
              : "Neither side holds a block that passes the filters."}
          </p>
        </Empty>
      </>
    );
  }

  const zoomOut = () => {
    const above = document.ancestors.at(-1);
    if (above) go({ root: document.ancestors.length === 1 ? undefined : above.id });
  };
  const zoomTo = (node: FlameNode) => {
    hover.clear();
    if (!node.parent) zoomOut();
    else if (node.folded === 0) go({ root: node.id });
    else if (node.parent.parent) go({ root: node.parent.id });
  };
  const menuOf = (node: FlameNode): MenuItem[] => [
    { label: "Zoom in", hint: "Enter", run: () => zoomTo(node), disabled: !node.parent },
    { label: "Zoom out", hint: "Backspace", run: zoomOut, disabled: document.ancestors.length === 0 },
    ...(node.frame ? (["separator", ...functionMenu({ ...node.frame })] satisfies MenuItem[]) : []),
  ];
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const move = (to: FlameNode | undefined) => {
      if (!to) return;
      setActiveRow(to.row);
      chart.current?.reveal(to.row);
    };
    if (isMenuKey(event)) {
      const element = chart.current?.element(active.row);
      if (element) openMenu(below(element), menuOf(active));
    } else if (event.key === "ArrowDown") move(neighbour(active, "callee"));
    else if (event.key === "ArrowUp") move(neighbour(active, "caller"));
    else if (event.key === "ArrowLeft") move(neighbour(active, "previous"));
    else if (event.key === "ArrowRight") move(neighbour(active, "next"));
    else if (event.key === "Home") move(tree);
    else if (event.key === "Enter") zoomTo(active);
    else if (event.key === "Backspace") zoomOut();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <>
      {bar}
      <FoldedNote root={tree} />
      <Chart
        ref={chart}
        name="diff"
        label={`Change of ${document.pinned ? `pinned ${pagesOf(document.pin_unit)}` : `${document.metric} ${unit}`} from ${document.before} to ${document.after}`}
        downwards
        tree={tree}
        paint={paint}
        describe={describe}
        write={write}
        width={width}
        matches={matches?.rows}
        activeRow={active.row}
        onKeyDown={onKeyDown}
        onZoom={zoomTo}
        onHover={hover.set}
        onMenu={(node, at) => {
          hover.clear();
          setActiveRow(node.row);
          openMenu(at, menuOf(node));
        }}
      />
      <Hovered store={hover} otherwise={active} document={document} />
    </>
  );
}

/** The frame under the pointer, beside it and in the bar under the graph. */
function Hovered({
  store,
  otherwise,
  document,
}: {
  store: HoverStore;
  otherwise: FlameNode;
  document: DiffFlamegraph;
}) {
  const node = useSyncExternalStore(store.subscribe, store.get);
  return (
    <>
      <Both node={node ?? otherwise} document={document} />
      {node && (
        <Tip store={store}>
          <div className="frame-tip-name mono">{nodeName(node)}</div>
          <Numbers node={node} document={document} />
        </Tip>
      )}
    </>
  );
}

function Numbers({ node, document }: { node: FlameNode; document: DiffFlamegraph }) {
  if (!node.sides) return null;
  const { before, after, ownBefore, ownAfter } = node.sides;
  const row = (label: string, from: number, to: number) => (
    <div>
      <dt>{label}</dt>
      <dd>{formatExact(from, document.unit)}</dd>
      <dd>{formatExact(to, document.unit)}</dd>
      <dd className={to > from ? "grew" : to < from ? "shrank" : "muted"}>{formatSigned(to - from, document.unit)}</dd>
      <dd>{changeText(from, to)}</dd>
    </div>
  );
  return (
    <dl>
      <div>
        <dt />
        <dd className="muted">before</dd>
        <dd className="muted">after</dd>
        <dd className="muted">change</dd>
        <dd />
      </div>
      {row("total", before, after)}
      {row("self", ownBefore, ownAfter)}
    </dl>
  );
}

/** The bar under the graph. */
function Both({ node, document }: { node: FlameNode; document: DiffFlamegraph }) {
  const { frame, sides } = node;
  return (
    <footer className="details">
      <span className="details-name mono">{shortName(plainTypes(nodeName(node)), 300)}</span>
      <span className="muted">{[frame?.module, location(frame?.file, frame?.line)].filter(Boolean).join(" · ")}</span>
      <span className="spring" />
      {sides && (
        <>
          <span>
            <span className="muted">before</span> {formatValue(sides.before, document.unit)}
          </span>
          <span>
            <span className="muted">after</span> {formatValue(sides.after, document.unit)}
          </span>
          <b className={node.value > 0 ? "grew" : node.value < 0 ? "shrank" : "muted"}>
            {formatSigned(node.value, document.unit)}
          </b>
          <span>{changeText(sides.before, sides.after)}</span>
        </>
      )}
    </footer>
  );
}
