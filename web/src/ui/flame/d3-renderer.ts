// Draws with d3-flame-graph 5, where a browser gives no canvas, around its traps: it is called once a mount and gets fresh plain objects afterwards
// (a second call would wrap its own nodes again), it changes its data (so it gets copies), it freezes its height
// unless an option says otherwise, it knows nothing of keyboards and roles (added after each update).

import flamegraph, { type ChartNode, type Datum, type Tooltip } from "d3-flame-graph";
import { select } from "d3-selection";
import { interrupt } from "d3-transition";
import { everyNode, type FlameNode } from "../../lib/flame-tree.ts";
import { isChosen } from "../../lib/identity.ts";
import { shortName } from "../../lib/names.ts";
import { type FlameLook, type FlameMarks, type MakeFlameRenderer, rowElementId } from "./renderer.ts";

interface FrameDatum extends Datum {
  row: number;
  children?: FrameDatum[];
}

export const ROW_HEIGHT = 19;
const ZOOM_MS = 180;
/** Frames narrower than this have no label. */
const LABEL_PX = 35;
/** Names and roles are for readers, not for the next picture: they wait until nothing changes for so long. */
const DESCRIBE_AFTER_MS = 60;

export const makeD3Renderer: MakeFlameRenderer = (host, name, width, handlers) => {
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  let nodes = new Map<number, FlameNode>();
  let look: FlameLook | undefined;
  let shown: FlameNode | undefined;
  let marks: FlameMarks = { matches: undefined, selectedName: undefined, activeRow: undefined };
  let called = false;
  let elements = new Map<number, SVGGElement>();
  let byName = new Map<string, SVGGElement[]>();
  let lit: string | undefined;
  let describing: ReturnType<typeof setTimeout> | undefined;

  const nodeOf = (drawn: ChartNode<FrameDatum>) => nodes.get(drawn.data.row);

  const tooltip: Tooltip<FrameDatum> = Object.assign(() => undefined, {
    show: (event: MouseEvent, drawn: ChartNode<FrameDatum>) =>
      handlers.onHover(nodeOf(drawn), { x: event.clientX, y: event.clientY }),
    hide: () => handlers.onHover(undefined, { x: 0, y: 0 }),
    destroy: () => undefined,
  });

  const chart = flamegraph<FrameDatum>()
    .width(width)
    .cellHeight(ROW_HEIGHT)
    .minFrameSize(0)
    .selfValue(false)
    .sort(false)
    .title("")
    .resetHeightOnZoom(true)
    .tooltip(tooltip)
    .setColorMapper((drawn) => {
      const node = nodeOf(drawn);
      return node && look ? look.color(node) : "transparent";
    })
    .onClick((drawn) => {
      // Without motion at once; else the labels of frames that grow wide enough, while they grow.
      settle(still.matches);
      const node = nodeOf(drawn);
      if (node) handlers.onZoom(node);
    });

  const onContextMenu = (event: MouseEvent) => {
    const element = event.target instanceof Element ? event.target.closest("g.frame") : null;
    if (!element) return;
    event.preventDefault();
    const node = nodeOf(select<Element, ChartNode<FrameDatum>>(element).datum());
    if (node) handlers.onMenu(node, { x: event.clientX, y: event.clientY });
  };
  const onMove = (event: MouseEvent) => {
    const element = event.target instanceof Element ? event.target.closest("g.frame") : null;
    if (!element) return;
    handlers.onHover(nodeOf(select<Element, ChartNode<FrameDatum>>(element).datum()), {
      x: event.clientX,
      y: event.clientY,
    });
  };
  host.addEventListener("contextmenu", onContextMenu);
  host.addEventListener("mousemove", onMove);

  /** Roles and names of the frames in the document. */
  function describe(): void {
    select(host).select("svg").attr("role", "presentation");
    for (const [row, element] of elements) {
      const node = nodes.get(row);
      if (!node || !look) continue;
      element.id = rowElementId(name, row);
      element.setAttribute("role", "treeitem");
      element.setAttribute("aria-level", String(node.depth + 1));
      element.setAttribute("aria-label", look.description(node));
      element.setAttribute("aria-selected", String(element.hasAttribute("data-selected")));
    }
  }

  /** After an update: who draws which row; and, unless d3's own motion shall be seen, every frame at its goal. */
  function settle(now: boolean): void {
    const height = Number(host.querySelector("svg")?.getAttribute("height") ?? 0);
    const frames = select(host).selectAll<SVGGElement, ChartNode<FrameDatum>>("g.frame");
    const root = frames.data().find((drawn) => drawn.parent === null);
    const scale = root ? chart.width() / (root.x1 - root.x0) : 1;
    elements = new Map();
    byName = new Map();
    frames.each(function (drawn) {
      elements.set(drawn.data.row, this);
      const name = nodeOf(drawn)?.frame?.name;
      if (name !== undefined) {
        const same = byName.get(name);
        if (same) same.push(this);
        else byName.set(name, [this]);
      }
      this.toggleAttribute("data-lit", name !== undefined && name === lit);
      const width = (drawn.x1 - drawn.x0) * scale;
      const [rect, label] = [this.querySelector("rect"), this.querySelector("foreignObject")];
      // What is not displayed is not laid out: most frames are narrow, and their labels would cost the most.
      if (label) label.style.display = width < LABEL_PX ? "none" : "";
      this.toggleAttribute("data-folded", (nodeOf(drawn)?.folded ?? 0) > 0);
      if (!now) return;
      const y = look?.downwards ? drawn.depth * ROW_HEIGHT : height - (drawn.depth + 1) * ROW_HEIGHT;
      interrupt(this);
      this.setAttribute("transform", `translate(${drawn.x0 * scale},${y})`);
      if (rect) {
        interrupt(rect);
        rect.setAttribute("width", String(width));
      }
      const text = label?.querySelector("div");
      if (text) {
        interrupt(text);
        text.textContent = drawn.data.name;
      }
    });
    applyMarks();
    clearTimeout(describing);
    describing = setTimeout(describe, DESCRIBE_AFTER_MS);
  }

  function applyMarks(): void {
    for (const [row, element] of elements) {
      const node = nodes.get(row);
      const hit = marks.matches?.has(row);
      const selected = isChosen(node?.frame, marks.selectedName);
      element.toggleAttribute("data-match", hit === true);
      element.toggleAttribute("data-dim", hit === false && !selected);
      element.toggleAttribute("data-active", row === marks.activeRow);
      if (element.toggleAttribute("data-selected", selected) || element.hasAttribute("aria-selected")) {
        element.setAttribute("aria-selected", String(selected));
      }
    }
  }

  function datum(root: FlameNode): FrameDatum {
    const made = new Map<FlameNode, FrameDatum>();
    for (const node of everyNode(root)) {
      if (node.weight === 0 && node.parent) continue;
      const mine: FrameDatum = { row: node.row, name: shortName(look?.label(node) ?? "", 160), value: node.weight };
      made.set(node, mine);
      const above = node.parent && made.get(node.parent);
      if (above) {
        above.children ??= [];
        above.children.push(mine);
      }
    }
    return made.get(root) ?? { row: 0, name: "", value: 0 };
  }

  return {
    render(_, root, nextLook, nextMarks) {
      // The tree begins at the frame that is zoomed to.
      shown = root;
      look = nextLook;
      marks = nextMarks;
      nodes = new Map([...everyNode(root)].map((node) => [node.row, node]));
      chart.inverted(look.downwards).transitionDuration(0);
      if (called) {
        chart.update(datum(root));
      } else {
        called = true;
        select(host).datum(datum(root)).call(chart);
      }
      chart.transitionDuration(still.matches ? 0 : ZOOM_MS);
      settle(true);
    },
    zoomTo: (node) => node === shown,
    moves: () => false,
    mark(next) {
      marks = next;
      applyMarks();
    },
    // As wide as the page and no wider: there is nothing beside what is seen.
    pan: (_, down) => host.scrollBy(0, down * host.clientHeight),
    scale: () => undefined,
    reveal: (row) => elements.get(row)?.scrollIntoView({ block: "nearest" }),
    light(name) {
      if (name === lit) return;
      for (const element of byName.get(lit ?? "") ?? []) element.removeAttribute("data-lit");
      for (const element of byName.get(name ?? "") ?? []) element.setAttribute("data-lit", "");
      lit = name;
    },
    resize(next) {
      chart.width(next).transitionDuration(0);
      if (called) {
        chart.update();
        settle(true);
      }
      chart.transitionDuration(still.matches ? 0 : ZOOM_MS);
    },
    element: (row) => elements.get(row) ?? null,
    destroy() {
      clearTimeout(describing);
      host.removeEventListener("contextmenu", onContextMenu);
      host.removeEventListener("mousemove", onMove);
      if (called) chart.destroy();
    },
  };
};
