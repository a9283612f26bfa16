// Keys of the flame graph. Arrows walk from frame to frame; w a s d and Shift with arrows move what is seen.
import { type KeyboardEvent, useEffect, useRef } from "react";
import { type FlameNode, neighbour } from "../../lib/flame-tree.ts";
import type { ChartHandle } from "../../ui/flame/chart.tsx";
import { isMenuKey } from "../../ui/menu.tsx";

interface Keys {
  active: FlameNode;
  tree: FlameNode;
  chart: () => ChartHandle | null;
  upwards: boolean;
  moveTo: (node: FlameNode | undefined) => void;
  zoomTo: (node: FlameNode) => void;
  zoomOut: () => void;
  openMenu: (at: Element) => void;
  copyStack: () => void;
  /** Pins the frame under the pointer, else the active one, which is drawn here. */
  pin: (at: Element) => void;
  /** Whether the key transforms the stacks: by the frame under the pointer, else by this one. */
  transform: (key: string, node: FlameNode) => boolean;
}

/** A step sideways or down, as a part of what is seen; and what a step of zooming leaves of the width. */
const STEP = 0.2;
const CLOSER = 0.7;
/** Steps back to everything, however close the view is. */
const WHOLE = 1e9;

/** What the graph does with a key; keys that are not its own go on to the page. */
export function keysOf(keys: Keys): (event: KeyboardEvent) => void {
  return (event) => {
    if (event.altKey) return;
    if (event.ctrlKey || event.metaKey) {
      // What is marked elsewhere on the page is what the user wants to copy.
      if (event.key !== "c" || !document.getSelection()?.isCollapsed) return;
      keys.copyStack();
    } else if (!press(event, keys)) return;
    event.preventDefault();
    event.stopPropagation();
  };
}

/** Handles a key; returns whether it has. */
function press(event: KeyboardEvent, keys: Keys): boolean {
  const { active, tree, upwards, moveTo } = keys;
  const chart = keys.chart();
  const withElement = (run: (element: Element) => void) => {
    const element = chart?.element(active.row);
    if (element) run(element);
  };
  if (isMenuKey(event)) {
    withElement(keys.openMenu);
    return true;
  }
  if (event.shiftKey && event.key.startsWith("Arrow")) {
    if (event.key === "ArrowLeft") chart?.pan(-STEP, 0);
    else if (event.key === "ArrowRight") chart?.pan(STEP, 0);
    else chart?.pan(0, event.key === "ArrowUp" ? -STEP : STEP);
    return true;
  }
  switch (event.key) {
    case "ArrowDown":
      moveTo(neighbour(active, upwards ? "caller" : "callee"));
      return true;
    case "ArrowUp":
      moveTo(neighbour(active, upwards ? "callee" : "caller"));
      return true;
    case "ArrowLeft":
      moveTo(neighbour(active, "previous"));
      return true;
    case "ArrowRight":
      moveTo(neighbour(active, "next"));
      return true;
    case "PageDown":
      chart?.pan(0, 0.9);
      return true;
    case "PageUp":
      chart?.pan(0, -0.9);
      return true;
    case "Home":
      moveTo(tree);
      return true;
    case "Enter":
      keys.zoomTo(active);
      return true;
    case "Backspace":
      keys.zoomOut();
      return true;
    case "w":
    case "+":
    case "=":
      chart?.scale(CLOSER);
      return true;
    case "s":
    case "-":
      chart?.scale(1 / CLOSER);
      return true;
    case "0":
      chart?.scale(WHOLE);
      return true;
    case "a":
      chart?.pan(-STEP, 0);
      return true;
    case "d":
      chart?.pan(STEP, 0);
      return true;
    case "p":
      withElement(keys.pin);
      return true;
    default:
      return keys.transform(event.key, active);
  }
}

/**
 * Letters that are about a frame mean the one under the pointer, where the keyboard is nowhere else: `p` and the
 * transforms. Returns where to put what handles a letter, and says whether it has.
 */
export function useHoverKeys(): { current: (key: string) => boolean } {
  const latest = useRef<(key: string) => boolean>(() => false);
  useEffect(() => {
    const onKey = (event: globalThis.KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (event.target !== document.body || !/^[a-z]$/i.test(event.key)) return;
      if (document.querySelector("dialog[open]") || !latest.current(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
    };
    // Before the keys of every view, and behind the letter after a g.
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  return latest;
}
