// Draws with d3-flame-graph 5, around its traps: it is called once a mount and gets fresh plain objects afterwards
// (a second call would wrap its own nodes again), it changes its data (so it gets copies), it freezes its height
// unless told otherwise, it knows nothing of keyboards and roles (added after each update).
import flamegraph, { type ChartNode, type Datum, type Tooltip } from "d3-flame-graph";
import { select } from "d3-selection";
import { interrupt } from "d3-transition";
import { everyNode, type FlameNode } from "../../lib/flame-tree.ts";
import { shortName } from "../../lib/names.ts";
import { type FlameLook, type FlameMarks, type MakeFlameRenderer, rowElementId } from "./renderer.ts";

interface FrameDatum extends Datum {
  row: number;
  children?: FrameDatum[];
}

export const ROW_HEIGHT = 19;
const ZOOM_MS = 180;

export const makeD3Renderer: MakeFlameRenderer = (host, name, width, handlers) => {
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  let nodes = new Map<number, FlameNode>();
  let look: FlameLook | undefined;
  let marks: FlameMarks = { matches: undefined, selectedName: undefined, activeRow: undefined };
  let called = false;

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
      if (still.matches) settle();
      describe();
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

  /** Roles, names and marks of the frames in the document. */
  function describe(): void {
    const svg = select(host).select<SVGSVGElement>("svg").attr("role", "presentation");
    svg.selectAll<SVGGElement, ChartNode<FrameDatum>>("g.frame").each(function (drawn) {
      const node = nodeOf(drawn);
      if (!node || !look) return;
      this.id = rowElementId(name, node.row);
      this.setAttribute("role", "treeitem");
      this.setAttribute("aria-level", String(node.depth + 1));
      this.setAttribute("aria-label", look.description(node));
      // The full name stays in the tree of nodes; an attribute of ten thousand characters helps nobody.
      this.setAttribute("name", shortName(look.label(node), 160));
      this.toggleAttribute("data-folded", node.folded > 0);
    });
    applyMarks();
  }

  /** Ends the transitions that an update starts (new frames would grow for a quarter of a second) at their goal. */
  function settle(): void {
    const svg = host.querySelector("svg");
    const height = Number(svg?.getAttribute("height") ?? 0);
    const frames = select(host).selectAll<SVGGElement, ChartNode<FrameDatum>>("g.frame");
    const { x0, x1 } = whole(frames.data()) ?? { x0: 0, x1: 1 };
    const scale = chart.width() / (x1 - x0);
    frames.each(function (drawn) {
      const y = look?.downwards ? drawn.depth * ROW_HEIGHT : height - (drawn.depth + 1) * ROW_HEIGHT;
      interrupt(this);
      this.setAttribute("transform", `translate(${drawn.x0 * scale},${y})`);
      const rect = this.querySelector("rect");
      const label = this.querySelector("div");
      if (!rect || !label) return;
      interrupt(rect);
      rect.setAttribute("width", String((drawn.x1 - drawn.x0) * scale));
      interrupt(label);
      label.textContent = drawn.data.name;
    });
  }

  function applyMarks(): void {
    select(host)
      .selectAll<SVGGElement, ChartNode<FrameDatum>>("g.frame")
      .each(function (drawn) {
        const node = nodeOf(drawn);
        if (!node) return;
        const hit = marks.matches?.has(node.row);
        const selected = marks.selectedName !== undefined && node.frame?.name === marks.selectedName;
        this.toggleAttribute("data-match", hit === true);
        this.toggleAttribute("data-dim", hit === false && !selected);
        this.toggleAttribute("data-selected", selected);
        this.toggleAttribute("data-active", node.row === marks.activeRow);
        this.setAttribute("aria-selected", String(selected));
      });
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
    render(root, nextLook, nextMarks) {
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
      settle();
      describe();
    },
    mark(next) {
      marks = next;
      applyMarks();
    },
    resize(next) {
      chart.width(next).transitionDuration(0);
      if (called) {
        chart.update();
        settle();
      }
      chart.transitionDuration(still.matches ? 0 : ZOOM_MS);
    },
    element: (row) => host.querySelector(`#${rowElementId(name, row)}`),
    destroy() {
      host.removeEventListener("contextmenu", onContextMenu);
      host.removeEventListener("mousemove", onMove);
      if (called) chart.destroy();
    },
  };
};

/** The root of the tree that nodes are of. */
function whole(drawn: readonly ChartNode<FrameDatum>[]): ChartNode<FrameDatum> | undefined {
  return drawn.find((node) => node.parent === null);
}
