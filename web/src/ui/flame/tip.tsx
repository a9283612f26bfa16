// What is under the pointer: beside it, never over it; text only.
import { type ReactNode, useLayoutEffect, useRef } from "react";
import { createPortal } from "react-dom";

export function Tip({ x, y, children }: { x: number; y: number; children: ReactNode }) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const { width, height } = element.getBoundingClientRect();
    const left = x + 16 + width > window.innerWidth ? x - width - 12 : x + 16;
    const top = y + 22 + height > window.innerHeight ? y - height - 14 : y + 22;
    element.style.left = `${Math.max(4, left)}px`;
    element.style.top = `${Math.max(4, top)}px`;
  });
  return createPortal(
    <div ref={box} className="frame-tip" role="presentation">
      {children}
    </div>,
    document.body,
  );
}
