// Puts a renderer into the page: one renderer a mount, new trees and marks as they come.
import {
  type KeyboardEvent,
  type Ref,
  useCallback,
  useEffect,
  useImperativeHandle,
  useLayoutEffect,
  useRef,
} from "react";
import type { Theme } from "../../lib/colors.ts";
import { type FlameNode, nodeName } from "../../lib/flame-tree.ts";
import { light, onLight } from "../lit.ts";
import { usePage } from "../page.ts";
import { useTheme } from "../theme.ts";
import { boxLabel } from "./box-text.ts";
import { makeCanvasRenderer } from "./canvas-renderer.ts";
import { hasCanvas } from "./has-canvas.ts";
import { type FlameHandlers, type FlameRenderer, type MakeFlameRenderer, rowElementId } from "./renderer.ts";

/** What a view may ask of the graph that is drawn. */
export type ChartHandle = Pick<FlameRenderer, "element" | "moves" | "pan" | "scale" | "reveal" | "zoomTo">;

const makeRenderer: MakeFlameRenderer = hasCanvas()
  ? makeCanvasRenderer
  : (await import("./d3-renderer.ts")).makeD3Renderer;

const writeName = (node: FlameNode): string => boxLabel(nodeName(node), node.frame?.file);

interface ChartProps extends FlameHandlers {
  name: string;
  /** Spoken name. */
  label: string;
  downwards: boolean;
  ref: Ref<ChartHandle>;
  tree: FlameNode;
  /** The frame of it that takes the whole width; else its root. */
  zoom?: FlameNode;
  /** Colours for a theme. Keep it the same while the tree is. */
  paint: (theme: Theme) => (node: FlameNode) => string;
  /** Spoken name of a frame. Keep it the same while the tree is. */
  describe: (node: FlameNode) => string;
  /** What is written on a frame; else its name without arguments. */
  write?: (node: FlameNode) => string;
  width: number;
  matches: ReadonlySet<number> | undefined;
  activeRow: number;
  onKeyDown: (event: KeyboardEvent) => void;
}

export function Chart(props: ChartProps) {
  const { name, tree, paint, describe, write = writeName, width, downwards, matches, activeRow } = props;
  const zoom = props.zoom ?? tree;
  const { search } = usePage();
  const theme = useTheme();
  const host = useRef<HTMLDivElement>(null);
  const renderer = useRef<FlameRenderer | null>(null);
  const handlers = useRef<FlameHandlers>(props);
  handlers.current = props;
  const firstWidth = useRef(width);
  const drawnWidth = useRef(width);

  useImperativeHandle(
    props.ref,
    () => ({
      element: (row) => renderer.current?.element(row) ?? null,
      moves: () => renderer.current?.moves() ?? false,
      pan: (right, down) => renderer.current?.pan(right, down),
      scale: (factor) => renderer.current?.scale(factor),
      reveal: (row) => renderer.current?.reveal(row),
      zoomTo: (node) => renderer.current?.zoomTo(node) ?? false,
    }),
    [],
  );

  useLayoutEffect(() => {
    if (!host.current) return;
    drawnWidth.current = firstWidth.current;
    const made = makeRenderer(host.current, name, firstWidth.current, {
      onZoom: (node) => handlers.current.onZoom(node),
      onHover: (node, at) => {
        light(node?.frame?.name);
        handlers.current.onHover(node, at);
      },
      onMenu: (node, at) => handlers.current.onMenu(node, at),
      onPin: (node, at) => handlers.current.onPin?.(node, at),
      onArrive: () => handlers.current.onArrive?.(),
    });
    renderer.current = made;
    const dark = onLight((lit) => made.light(lit));
    return () => {
      dark();
      light(undefined);
      renderer.current = null;
      made.destroy();
    };
  }, [name]);

  const marks = { matches, selectedName: search.selected, activeRow };
  const latestMarks = useRef(marks);
  latestMarks.current = marks;
  const latestZoom = useRef(zoom);
  latestZoom.current = zoom;

  const draw = useCallback(() => {
    const look = { downwards, color: paint(theme), label: write, description: describe };
    renderer.current?.render(tree, latestZoom.current, look, latestMarks.current);
  }, [tree, paint, describe, write, downwards, theme]);

  useLayoutEffect(() => {
    draw();
    // What grows upwards has its root at the bottom, which is what is looked at first.
    if (!downwards && host.current) host.current.scrollTop = host.current.scrollHeight;
  }, [draw, downwards]);

  useLayoutEffect(() => {
    if (renderer.current?.zoomTo(zoom) === false) draw();
  }, [zoom, draw]);

  useEffect(() => {
    renderer.current?.mark({ matches, selectedName: search.selected, activeRow });
  }, [matches, search.selected, activeRow]);

  useLayoutEffect(() => {
    if (drawnWidth.current === width) return;
    drawnWidth.current = width;
    renderer.current?.resize(width);
  }, [width]);

  return (
    <div
      ref={host}
      className="flame-chart"
      role="tree"
      aria-label={props.label}
      aria-activedescendant={rowElementId(name, activeRow)}
      tabIndex={0}
      data-searching={matches !== undefined || undefined}
      onKeyDown={props.onKeyDown}
    />
  );
}
