// A word or number with its definition, shown on hover and on focus. Text only.
import { type ReactNode, useId, useRef, useState } from "react";
import { createPortal } from "react-dom";

interface Spot {
  left: number;
  top: number;
  above: boolean;
}

export function Term({ children, definition }: { children: ReactNode; definition: string }) {
  const id = useId();
  const anchor = useRef<HTMLButtonElement>(null);
  const [spot, setSpot] = useState<Spot | null>(null);
  const show = () => {
    const box = anchor.current?.getBoundingClientRect();
    if (!box) return;
    const above = box.bottom + 140 > window.innerHeight;
    setSpot({
      left: Math.max(8, Math.min(box.left, window.innerWidth - 336)),
      top: above ? box.top - 6 : box.bottom + 6,
      above,
    });
  };
  const hide = () => setSpot(null);
  return (
    <>
      <button
        ref={anchor}
        type="button"
        className="term"
        aria-describedby={spot ? id : undefined}
        onPointerEnter={show}
        onPointerLeave={hide}
        onFocus={show}
        onBlur={hide}
        onKeyDown={(event) => {
          if (event.key === "Escape") hide();
        }}
      >
        {children}
      </button>
      {spot &&
        createPortal(
          <div
            id={id}
            role="tooltip"
            className="tip"
            data-above={spot.above || undefined}
            style={{ left: spot.left, top: spot.top }}
          >
            {definition}
          </div>,
          document.body,
        )}
    </>
  );
}
