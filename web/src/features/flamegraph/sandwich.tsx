// A function between its callers (above, growing up) and what it calls (below, growing down).
import { useQuery } from "@tanstack/react-query";
import { useMemo, useRef, useState } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Flamegraph } from "../../api/types.ts";
import type { Theme } from "../../lib/colors.ts";
import { buildTree, callersOf, everyNode, type FlameNode, neighbour } from "../../lib/flame-tree.ts";
import { formatPercent, formatValue } from "../../lib/format.ts";
import { identityOf, isChosen, nameIn, patternOf } from "../../lib/identity.ts";
import { shortName } from "../../lib/names.ts";
import { plainTypes } from "../../lib/plain-types.ts";
import type { ColorGroup } from "../../lib/search-params.ts";
import { Button } from "../../ui/controls.tsx";
import { Chart, type ChartHandle } from "../../ui/flame/chart.tsx";
import { colorOf, descriptionOf, groupingLike } from "../../ui/flame/coloring.ts";
import { useHoverStore } from "../../ui/flame/hover-store.ts";
import { useFunctionMenu } from "../../ui/function-menu.ts";
import { below, isMenuKey, type MenuItem, useMenu } from "../../ui/menu.tsx";
import { usePage, useRequest } from "../../ui/page.ts";
import { Answer, Empty } from "../../ui/states.tsx";
import { useWidth } from "../../ui/use-size.ts";
import { HoverDetails, HoverTip } from "./hover.tsx";
import { treeOf } from "./trees.ts";

const LIMITS = { min_px: 0.5, max_nodes: 5000 } as const;

export function Sandwich({ of: chosen }: { of: string }) {
  const { search, subject, go, recording } = usePage();
  const request = useRequest();
  const host = useRef<HTMLDivElement>(null);
  const width = useWidth(host);
  const shared = {
    ...request.metric,
    ...request.filters,
    width: Math.max(200, Math.round(width / 100) * 100),
    ...LIMITS,
  };
  const pattern = patternOf(chosen);
  const name = nameIn(chosen);
  // Both cut the stacks at the outermost call, so recursion counts once.
  const callees = useQuery({
    ...documentQuery(subject, "flamegraph", { ...shared, show_from: pattern }),
    enabled: width > 0,
  });
  const callers = useQuery({
    ...documentQuery(subject, "flamegraph", { ...shared, focus: pattern }),
    enabled: width > 0,
  });
  // One choice for both halves, so that a module or file has one colour above and below.
  const part = callees.data && treeOf(callees.data)?.top;
  const by = groupingLike(recording.id, part, search.color);
  const half = { chosen, by, width };
  return (
    <div ref={host} className="flame-view">
      <div className="flame-bar">
        <Button onClick={() => go({ sandwich: undefined })}>‹ The whole graph</Button>
        <b className="mono">{shortName(plainTypes(name), 120)}</b>
        {callees.data && (
          <span className="muted">
            {callees.data.metric} <b className="strong">{formatValue(callees.data.total, callees.data.unit)}</b>
          </span>
        )}
        <span className="spring" />
        {search.filters && (search.filters.focus ?? search.filters.show_from) && (
          <span className="warn">the filters focus and show from are ignored here</span>
        )}
      </div>
      <Answer query={callers} what="the callers">
        {(document) => <Half key="callers" document={document} side="callers" {...half} />}
      </Answer>
      <Answer query={callees} what="the callees">
        {(document) => <Half key="callees" document={document} side="callees" {...half} />}
      </Answer>
    </div>
  );
}

interface HalfProps {
  document: Flamegraph;
  chosen: string;
  side: "callers" | "callees";
  by: ColorGroup | undefined;
  width: number;
}

function Half({ document, chosen, side, by, width }: HalfProps) {
  const { go } = usePage();
  const openMenu = useMenu();
  const functionMenu = useFunctionMenu();
  const chart = useRef<ChartHandle>(null);
  const [activeRow, setActiveRow] = useState(0);
  const hover = useHoverStore();
  const tree = useMemo(() => {
    const whole = buildTree(document);
    if (!whole) return undefined;
    if (side === "callers") return callersOf(whole, (frame) => isChosen(frame, chosen), document.total);
    // Under `show_from` everything starts with the function: it is the only child of the root.
    const [only] = whole.children;
    return whole.children.length === 1 && only ? asRoot(only) : whole;
  }, [document, chosen, side]);
  const byRow = useMemo(() => new Map(tree ? [...everyNode(tree)].map((node) => [node.row, node]) : []), [tree]);
  const paint = useMemo(
    () => (theme: Theme) => (tree ? colorOf(tree, document, theme, by) : () => ""),
    [tree, document, by],
  );
  const describe = useMemo(() => descriptionOf(document), [document]);
  if (!tree || tree.weight === 0) {
    return (
      <Empty title={`No ${side} in this window`}>
        <p>No block in it has this function on its stack.</p>
      </Empty>
    );
  }
  const name = nameIn(chosen);
  const active = byRow.get(activeRow) ?? tree;
  const open = (node: FlameNode) => {
    if (node.frame && node.parent) go({ sandwich: identityOf(node.frame), selected: identityOf(node.frame) });
  };
  const menuOf = (node: FlameNode): MenuItem[] => (node.frame ? functionMenu({ ...node.frame }) : []);
  return (
    <section className="sandwich-half" data-side={side} aria-label={side}>
      <Chart
        ref={chart}
        name={side}
        label={side === "callers" ? `Callers of ${shortName(name, 120)}` : `What ${shortName(name, 120)} calls`}
        downwards={side === "callees"}
        tree={tree}
        paint={paint}
        describe={describe}
        width={width}
        matches={undefined}
        activeRow={active.row}
        onKeyDown={(event) => {
          const away = side === "callees" ? "ArrowDown" : "ArrowUp";
          const back = side === "callees" ? "ArrowUp" : "ArrowDown";
          const to =
            event.key === away
              ? neighbour(active, "callee")
              : event.key === back
                ? neighbour(active, "caller")
                : event.key === "ArrowLeft"
                  ? neighbour(active, "previous")
                  : event.key === "ArrowRight"
                    ? neighbour(active, "next")
                    : undefined;
          if (isMenuKey(event)) {
            const element = chart.current?.element(active.row);
            const items = menuOf(active);
            if (element && items.length > 0) openMenu(below(element), items);
          } else if (event.key === "Enter") open(active);
          else if (to) {
            setActiveRow(to.row);
            chart.current?.reveal(to.row);
          } else return;
          event.preventDefault();
          event.stopPropagation();
        }}
        onZoom={open}
        onHover={hover.set}
        onMenu={(node, at) => {
          hover.clear();
          const items = menuOf(node);
          if (items.length > 0) openMenu(at, items);
        }}
      />
      <HoverDetails
        store={hover}
        node={active}
        document={document}
        zoom={tree}
        label={`${side} · ${formatPercent(tree.value / document.total)}`}
        withSelf={side === "callees"}
      />
      <HoverTip store={hover} document={document} zoom={tree} />
    </section>
  );
}

/** The same subtree, as a tree of its own. */
function asRoot(node: FlameNode): FlameNode {
  const copy = (from: FlameNode, parent: FlameNode | undefined): FlameNode => {
    const out: FlameNode = { ...from, parent, depth: parent ? parent.depth + 1 : 0, children: [] };
    out.children = from.children.map((child) => copy(child, out));
    return out;
  };
  return copy(node, undefined);
}
