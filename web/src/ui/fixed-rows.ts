// Which rows of a table can be seen, where all are of one height: arithmetic, whatever their number.
import { type RefObject, useLayoutEffect, useState } from "react";
import { flushSync } from "react-dom";
import type { LongScroll } from "./long-scroll.ts";

/** Rows that are there above and below those that can be seen. */
const SPARE = 12;

export interface FixedRows {
  /** The rows that are there: from the first to the one behind the last. */
  first: number;
  end: number;
  /** How far the table is scrolled, in pixels of rows. */
  offset: number;
}

/** The rows that are there when `offset` pixels of them are scrolled away and `room` pixels can be seen. */
export function rowsAt(count: number, rowHeight: number, offset: number, room: number): FixedRows {
  if (room <= 0) return { first: 0, end: 0, offset };
  const first = Math.floor(offset / rowHeight) - SPARE;
  const end = Math.ceil((offset + room) / rowHeight) + SPARE;
  return { first: Math.max(0, Math.min(count, first)), end: Math.max(0, Math.min(count, end)), offset };
}

/** The rows of a table that are there, as it is scrolled. */
export function useFixedRows(
  scroller: RefObject<HTMLElement | null>,
  long: RefObject<LongScroll>,
  count: number,
  rowHeight: number,
): FixedRows {
  const [seen, setSeen] = useState({ offset: 0, room: 0 });
  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box) return;
    const look = () =>
      setSeen((before) => {
        const offset = box.scrollTop * long.current.speed;
        const room = box.clientHeight;
        return before.offset === offset && before.room === room ? before : { offset, room };
      });
    look();
    // In the frame that scrolls: later, rows would be missing for a moment.
    const onScroll = () => flushSync(look);
    box.addEventListener("scroll", onScroll, { passive: true });
    const resizing = new ResizeObserver(look);
    resizing.observe(box);
    return () => {
      box.removeEventListener("scroll", onScroll);
      resizing.disconnect();
    };
  }, [scroller, long]);
  return rowsAt(count, rowHeight, seen.offset, seen.room);
}
