// Steps from match to match of the search, by keys.
import { useEffect, useRef } from "react";

/** n and N anywhere on the page, Enter and Shift + Enter in the search field: the next match, the one before. */
export function useMatchKeys(step: (by: 1 | -1) => void): void {
  const latest = useRef(step);
  latest.current = step;
  useEffect(() => {
    const onKey = (event: globalThis.KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const { target } = event;
      if (!(target instanceof HTMLElement)) return;
      const inSearch = target.matches("input[type=search]");
      if (inSearch ? event.key !== "Enter" : !/^n$/i.test(event.key)) return;
      if (!inSearch && target.matches("input:not([type=radio]), textarea, select, [role^=menuitem]")) return;
      if (document.querySelector("dialog[open]")) return;
      latest.current((inSearch ? event.shiftKey : event.key === "N") ? -1 : 1);
      event.preventDefault();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
}
