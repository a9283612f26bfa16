// Whether the page is laid out for paper, for components.
import { useSyncExternalStore } from "react";
import { isPaper, listenForPaper } from "./paper.ts";

export function usePrinting(): boolean {
  return useSyncExternalStore(listenForPaper, isPaper, () => false);
}
