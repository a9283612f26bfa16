// The size of an element as it is laid out.
import { type RefObject, useLayoutEffect, useState, useSyncExternalStore } from "react";
import { listenForPaper } from "./paper.ts";

export function useWidth(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const target = element.current;
    if (!target) return;
    const read = () => setWidth(Math.floor(target.clientWidth));
    read();
    const observer = new ResizeObserver(read);
    observer.observe(target);
    // A sheet of paper is laid out once: no observer is asked in between.
    const deafen = listenForPaper(read);
    return () => {
      observer.disconnect();
      deafen();
    };
  }, [element]);
  return width;
}

export function useWindowHeight(): number {
  return useSyncExternalStore(
    (listener) => {
      window.addEventListener("resize", listener);
      return () => window.removeEventListener("resize", listener);
    },
    () => window.innerHeight,
  );
}
