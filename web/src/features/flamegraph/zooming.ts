// When the address follows a zoom: to write it draws the page's other parts anew, so it waits for the picture.
import { type RefObject, useCallback, useEffect, useLayoutEffect, useRef } from "react";
import type { FlameNode } from "../../lib/flame-tree.ts";

/** A way that never ends, as in a window that nobody sees, is over after so long. */
const LONGEST_MS = 500;

/** Calls `run` after the browser has drawn its next picture; at once where nothing is drawn, as in a hidden tab. */
function afterPicture(run: () => void): void {
  if (document.hidden) run();
  else requestAnimationFrame(() => setTimeout(run));
}

interface FollowUp {
  /** Lets something be done when the graph has arrived (`glides`), or else behind its next picture. */
  follow: (run: () => void, glides: boolean) => void;
  /** Does now what waits. */
  flush: () => void;
}

/**
 * What follows a zoom: the address, and all that hangs on it. It comes at the end of a way that is shown, in one picture
 * with the finer graph that was requested at its begin: each picture of the page costs as much as the zoom itself.
 * Whatever the user does meanwhile finds it done; another tree and another view end the wait, too.
 */
export function useFollowUp(host: RefObject<HTMLElement | null>, tree: FlameNode | undefined): FollowUp {
  const waiting = useRef<{ run: () => void; timer: ReturnType<typeof setTimeout> | undefined } | undefined>(undefined);
  const take = useCallback(() => {
    const taken = waiting.current;
    clearTimeout(taken?.timer);
    waiting.current = undefined;
    if (host.current) delete host.current.dataset["refining"];
    return taken;
  }, [host]);
  const flush = useCallback(() => take()?.run(), [take]);
  const follow = useCallback(
    (run: () => void, glides: boolean) => {
      take();
      const next = { run, timer: glides ? setTimeout(flush, LONGEST_MS) : undefined };
      waiting.current = next;
      if (host.current) host.current.dataset["refining"] = "";
      if (!glides || document.hidden)
        afterPicture(() => {
          if (waiting.current === next) flush();
        });
    },
    [host, take, flush],
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: another tree has no frame that is zoomed to but the address's
  useLayoutEffect(() => flush(), [tree, flush]);
  useEffect(() => {
    const inputs = ["keydown", "pointerdown", "wheel"] as const;
    for (const input of inputs) window.addEventListener(input, flush, { capture: true, passive: true });
    // A program for readers of screens clicks without a pointer; behind a zoom by the pointer there is a click of its own.
    const onClick = ({ detail }: MouseEvent) => {
      if (detail === 0) flush();
    };
    window.addEventListener("click", onClick, { capture: true });
    return () => {
      for (const input of inputs) window.removeEventListener(input, flush, { capture: true });
      window.removeEventListener("click", onClick, { capture: true });
      take();
    };
  }, [flush, take]);
  return { follow, flush };
}
