// The window that is being dragged: shown at once, and in the address when it is let go. An address on each movement of
// the pointer would be three pictures of the page for one window.
import { useCallback, useMemo, useRef, useState } from "react";
import { flushSync } from "react-dom";
import type { PageSearch } from "../lib/search-params.ts";
import type { Window } from "../lib/time.ts";
import type { Page } from "../ui/page.ts";

interface Brush {
  window: Window;
  held: boolean;
  /** The address's state below it: with another one the brush is over. */
  over: PageSearch;
}

/** The page's state with the window that is being dragged, given that of the address. */
export function useBrush(given: PageSearch): { search: PageSearch; brushing: boolean; brush: Page["brush"] } {
  const [state, setState] = useState<Brush>();
  const latest = useRef(given);
  latest.current = given;
  const now = state?.over === given ? state : undefined;
  const window = now?.window;
  const search = useMemo(() => (window ? { ...given, window, at: undefined } : given), [given, window]);
  const brush = useCallback((window: Window, held: boolean) => {
    // At once, with its effects: the requests for what it shows leave within the same task.
    flushSync(() => setState({ window, held, over: latest.current }));
  }, []);
  return { search, brushing: now?.held === true, brush };
}
