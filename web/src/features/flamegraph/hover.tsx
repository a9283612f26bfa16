// Details of the frame under the pointer, and of the one that was pinned.
import { useEffect, useLayoutEffect, useRef, useSyncExternalStore } from "react";
import { createPortal } from "react-dom";
import type { Flamegraph } from "../../api/types.ts";
import type { FlameNode } from "../../lib/flame-tree.ts";
import { Button } from "../../ui/controls.tsx";
import type { HoverStore } from "../../ui/flame/hover-store.ts";
import type { Point } from "../../ui/flame/renderer.ts";
import { Tip } from "../../ui/flame/tip.tsx";
import { Details, type DetailsProps } from "./details.tsx";
import { FrameFacts } from "./frame-facts.tsx";

/** A frame whose numbers stay, and where. */
export interface Pinned {
  node: FlameNode;
  at: Point;
}

interface TipProps {
  store: HoverStore;
  document: Flamegraph;
  zoom: FlameNode;
}

/** The tooltip beside the pointer. */
export function HoverTip({ store, document, zoom }: TipProps) {
  const node = useSyncExternalStore(store.subscribe, store.get);
  if (!node) return null;
  return (
    <Tip store={store}>
      <FrameFacts node={node} document={document} zoom={zoom} />
      <div className="muted">
        {node.folded > 0 ? "Click to zoom in" : "Click to zoom, Shift + click to keep this, right click for more"}
      </div>
    </Tip>
  );
}

/** The bar below the graph: the frame under the pointer, else the one that the keyboard is on. */
export function HoverDetails({ store, node, ...rest }: DetailsProps & { store: HoverStore }) {
  const hover = useSyncExternalStore(store.subscribe, store.get);
  return <Details {...rest} node={hover ?? node} />;
}

interface PinnedProps {
  pinned: Pinned;
  document: Flamegraph;
  zoom: FlameNode;
  close: () => void;
  /** Gives the focus back. */
  focus: () => void;
}

/** The numbers of a frame that stay: text to be marked and copied, beside whatever is hovered next. */
export function PinnedTip({ pinned, document, zoom, close, focus }: PinnedProps) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const { width, height } = element.getBoundingClientRect();
    element.style.left = `${Math.max(4, Math.min(pinned.at.x + 12, window.innerWidth - width - 8))}px`;
    element.style.top = `${Math.max(4, Math.min(pinned.at.y + 12, window.innerHeight - height - 8))}px`;
  }, [pinned]);
  const leave = () => {
    close();
    focus();
  };
  const latest = useRef(close);
  latest.current = close;
  // Wherever the keyboard is, the first Escape takes it away, before what else Escape undoes.
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || event.defaultPrevented || globalThis.document.querySelector("dialog[open]")) return;
      if (event.target instanceof HTMLElement && event.target.matches("input, textarea, select, [role^=menuitem]"))
        return;
      latest.current();
      event.preventDefault();
      event.stopPropagation();
    };
    globalThis.document.addEventListener("keydown", onKey);
    return () => globalThis.document.removeEventListener("keydown", onKey);
  }, []);
  return createPortal(
    <section
      ref={box}
      className="frame-tip frame-tip-pinned"
      aria-label="Pinned frame"
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        leave();
      }}
    >
      <FrameFacts node={pinned.node} document={document} zoom={zoom} />
      <Button quiet onClick={leave} title="Esc">
        Close
      </Button>
    </section>,
    globalThis.document.body,
  );
}
