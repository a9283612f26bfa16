// The controls of a view. They stand in the page's second bar, beside filters and search, where the frame has one.
import { createContext, type ReactNode, useContext } from "react";
import { createPortal } from "react-dom";

/** Where the frame puts the controls of the view; none outside of it. */
export const ViewBarSlot = createContext<HTMLElement | null>(null);

export function ViewBar({ children }: { children: ReactNode }) {
  const slot = useContext(ViewBarSlot);
  const bar = <div className="view-bar">{children}</div>;
  return slot ? createPortal(bar, slot) : bar;
}
