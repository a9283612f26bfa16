// Tooltip beside the pointer, never over it; text only.
import { type ReactNode, useLayoutEffect, useRef } from "react";
import { createPortal } from "react-dom";
import type { HoverStore } from "./hover-store.ts";

/** Moves with the pointer, on the side of it that has more room: nothing has to be measured for that. */
export function Tip({ store, children }: { store: HoverStore; children: ReactNode }) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const move = ({ x, y }: { x: number; y: number }) => {
      const style = box.current?.style;
      if (!style) return;
      const { innerWidth, innerHeight } = window;
      const before = x > innerWidth / 2;
      const above = y > innerHeight / 2;
      style.left = before ? "auto" : `${x + 16}px`;
      style.right = before ? `${innerWidth - x + 12}px` : "auto";
      style.top = above ? "auto" : `${y + 22}px`;
      style.bottom = above ? `${innerHeight - y + 14}px` : "auto";
    };
    move(store.place());
    return store.onMove(move);
  }, [store]);
  return createPortal(
    <div ref={box} className="frame-tip" role="presentation">
      {children}
    </div>,
    document.body,
  );
}
