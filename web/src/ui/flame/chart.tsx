// Puts a renderer into the page: one renderer a mount, new trees and marks as they come.
import { type KeyboardEvent, type Ref, useEffect, useImperativeHandle, useLayoutEffect, useRef } from "react";
import type { Theme } from "../../lib/colors.ts";
import { type FlameNode, nodeName } from "../../lib/flame-tree.ts";
import { light, onLight } from "../lit.ts";
import { usePage } from "../page.ts";
import { useTheme } from "../theme.ts";
import { makeD3Renderer } from "./d3-renderer.ts";
import { type FlameHandlers, type FlameRenderer, rowElementId } from "./renderer.ts";

export interface ChartHandle {
  element: (row: number) => Element | null;
}

interface ChartProps extends FlameHandlers {
  name: string;
  /** Spoken name. */
  label: string;
  downwards: boolean;
  ref: Ref<ChartHandle>;
  tree: FlameNode;
  /** Colours for a theme. Keep it the same while the tree is. */
  paint: (theme: Theme) => (node: FlameNode) => string;
  /** Spoken name of a frame. Keep it the same while the tree is. */
  describe: (node: FlameNode) => string;
  /** What is written on a frame; else its name. */
  write?: (node: FlameNode) => string;
  width: number;
  matches: ReadonlySet<number> | undefined;
  activeRow: number;
  onKeyDown: (event: KeyboardEvent) => void;
}

export function Chart(props: ChartProps) {
  const { name, tree, paint, describe, write = nodeName, width, downwards, matches, activeRow } = props;
  const { search } = usePage();
  const theme = useTheme();
  const host = useRef<HTMLDivElement>(null);
  const renderer = useRef<FlameRenderer | null>(null);
  const handlers = useRef<FlameHandlers>(props);
  handlers.current = props;
  const firstWidth = useRef(width);
  const drawnWidth = useRef(width);

  useImperativeHandle(props.ref, () => ({ element: (row) => renderer.current?.element(row) ?? null }), []);

  useLayoutEffect(() => {
    if (!host.current) return;
    drawnWidth.current = firstWidth.current;
    const made = makeD3Renderer(host.current, name, firstWidth.current, {
      onZoom: (node) => handlers.current.onZoom(node),
      onHover: (node, at) => {
        light(node?.frame?.name);
        handlers.current.onHover(node, at);
      },
      onMenu: (node, at) => handlers.current.onMenu(node, at),
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

  useLayoutEffect(() => {
    renderer.current?.render(
      tree,
      {
        downwards,
        color: paint(theme),
        label: write,
        description: describe,
      },
      latestMarks.current,
    );
    // What grows upwards stands on its root, which is what is looked at first.
    if (!downwards && host.current) host.current.scrollTop = host.current.scrollHeight;
  }, [tree, paint, describe, write, downwards, theme]);

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
