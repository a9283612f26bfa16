// How often a gesture may speak, and the wheel without the page scrolling.
import { useEffect, useMemo, useRef } from "react";

interface Throttled<A> {
  (argument: A): void;
  cancel: () => void;
}

/** How long a gesture waits for the answers to what it said before. */
const PATIENCE_MS = 2000;
const LOOK_AGAIN_MS = 8;

/**
 * Runs at once, then at most every `ms` and not while `isBusy`, and last with the last argument. A new question ends
 * the one before it: who asks faster than answers come sees none.
 */
export function useThrottled<A>(run: (argument: A) => void, ms: number, isBusy: () => boolean): Throttled<A> {
  const latest = useRef({ run, isBusy });
  latest.current = { run, isBusy };
  return useMemo(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let waiting: { argument: A } | undefined;
    let ran = Number.NEGATIVE_INFINITY;
    const fire = () => {
      timer = undefined;
      if (!waiting) return;
      if (latest.current.isBusy() && performance.now() - ran < PATIENCE_MS) {
        timer = setTimeout(fire, LOOK_AGAIN_MS);
        return;
      }
      const { argument } = waiting;
      waiting = undefined;
      ran = performance.now();
      latest.current.run(argument);
      timer = setTimeout(fire, ms);
    };
    const throttled = (argument: A) => {
      waiting = { argument };
      if (timer === undefined) fire();
    };
    throttled.cancel = () => {
      clearTimeout(timer);
      timer = undefined;
      waiting = undefined;
    };
    return throttled;
  }, [ms]);
}

/** React's own wheel listener is passive and could not keep the page from scrolling. */
export function useWheel(element: { current: HTMLElement | null }, onWheel: (event: WheelEvent) => void): void {
  const latest = useRef(onWheel);
  latest.current = onWheel;
  useEffect(() => {
    const target = element.current;
    if (!target) return;
    const listener = (event: WheelEvent) => {
      event.preventDefault();
      latest.current(event);
    };
    target.addEventListener("wheel", listener, { passive: false });
    return () => target.removeEventListener("wheel", listener);
  }, [element]);
}
