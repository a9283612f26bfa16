// How often a gesture may speak, and the wheel without the page scrolling.
import { useEffect, useMemo, useRef } from "react";

interface Throttled<A> {
  (argument: A): void;
  cancel: () => void;
}

/** Runs at once, then at most every `ms`, and last with the last argument. */
export function useThrottled<A>(run: (argument: A) => void, ms: number): Throttled<A> {
  const latest = useRef(run);
  latest.current = run;
  return useMemo(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let waiting: { argument: A } | undefined;
    const fire = () => {
      timer = undefined;
      if (!waiting) return;
      const { argument } = waiting;
      waiting = undefined;
      latest.current(argument);
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
