// Tables that are higher than a browser draws: Chromium ends an element at 33,554,430 pixels, Firefox at 17,895,697.
// The scroll bar of such a table moves rows faster than it moves itself.

/** Pixels of the highest table body that is drawn as high as it is. */
export const HIGHEST = 15_000_000;
/** Pixels of a table's head, which scrolls with the rows; as in tables.css. */
const HEAD = 28;

export interface LongScroll {
  /** Pixels of rows for each pixel of the scroll bar. */
  speed: number;
  /** Height of the element that holds the rows. */
  height: number;
}

/** How a table of this height is scrolled inside of `room` pixels. */
export function longScroll(height: number, room: number): LongScroll {
  if (height <= HIGHEST) return { speed: 1, height };
  const hidden = (whole: number) => Math.max(1, whole + HEAD - room);
  return { speed: hidden(height) / hidden(HIGHEST), height: HIGHEST };
}

/** Where the rows have to stand so that the row at `top` is seen, if they stand at `offset` now. */
export function offsetFor(top: number, rowHeight: number, offset: number, room: number): number {
  const seen = room - HEAD;
  if (top < offset) return top;
  return top + rowHeight > offset + seen ? top + rowHeight - seen : offset;
}
