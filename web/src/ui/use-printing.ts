// Whether the page is laid out for paper.
import { useSyncExternalStore } from "react";

function subscribe(changed: () => void): () => void {
  const paper = matchMedia("print");
  paper.addEventListener("change", changed);
  return () => paper.removeEventListener("change", changed);
}

/** True from the moment at which the browser prints until it has; known before boxes are measured for paper. */
export function usePrinting(): boolean {
  return useSyncExternalStore(
    subscribe,
    () => matchMedia("print").matches,
    () => false,
  );
}
