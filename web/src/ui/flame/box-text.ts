// Text on frames: names without what makes them long, and as much of them as fits.
import { placedName } from "../../lib/names.ts";
import { plainTypes } from "../../lib/plain-types.ts";

/**
 * A function's name as it is on a frame: without its list of arguments, what follows it, and the type that it
 * returns. The tooltip has all of it.
 */
export function boxName(full: string): string {
  const name = plainTypes(full);
  const open = argumentsAt(name);
  if (open <= 0) return name;
  const rest = name.slice(open);
  // A function in a function (`main::{lambda(int)#3}::operator()(int)`) keeps what tells it apart.
  const front = name.slice(0, open);
  if (rest.includes("::", rest.lastIndexOf(")"))) return name;
  const start = returnTypeEnd(front);
  return start < 0 ? name : front.slice(start) || name;
}

/** What is written on the frame of a function. */
export function boxLabel(name: string, file: string | null | undefined): string {
  return placedName(boxName(name), file);
}

/** Where the last list of arguments at the outermost level begins; -1 if there is none. */
function argumentsAt(name: string): number {
  let end = name.lastIndexOf(")");
  if (end < 0) return -1;
  // `operator()` alone has no list.
  let depth = 0;
  for (; end >= 0; end -= 1) {
    const c = name.charAt(end);
    if (c === ")") depth += 1;
    else if (c === "(") {
      depth -= 1;
      if (depth === 0) break;
    }
  }
  if (end < 0 || name.slice(0, end).endsWith("operator")) return -1;
  return end;
}

/** Behind `void ` of `void f<int>`: the last blank outside of brackets before an operator; -1 within brackets. */
function returnTypeEnd(front: string): number {
  const operator = front.indexOf("operator");
  const until = operator >= 0 ? operator : front.length;
  let depth = 0;
  let at = 0;
  for (let i = 0; i < until; i += 1) {
    const c = front.charAt(i);
    if (c === "<" || c === "(" || c === "{" || c === "[") depth += 1;
    else if (c === ">" || c === ")" || c === "}" || c === "]") depth -= 1;
    else if (c === " " && depth === 0) at = i + 1;
  }
  return depth === 0 ? at : -1;
}

/** Widths of single characters in one font; each is measured once. */
export class TextFitter {
  private readonly widths = new Map<string, number>();
  private readonly measure: (text: string) => number;
  private readonly ellipsis: number;

  constructor(measure: (text: string) => number) {
    this.measure = measure;
    this.ellipsis = measure("…");
  }

  /** As much of the text as fits into a width in pixels; empty where not even three characters do. */
  fit(text: string, room: number): string {
    let used = 0;
    let kept = 0;
    let length = 0;
    let keptLength = 0;
    for (const c of text) {
      let width = this.widths.get(c);
      if (width === undefined) {
        width = this.measure(c);
        this.widths.set(c, width);
      }
      used += width;
      length += c.length;
      if (used + this.ellipsis <= room) {
        kept += 1;
        keptLength = length;
      }
      if (used > room) return kept < 2 ? "" : `${text.slice(0, keptLength)}…`;
    }
    return text;
  }
}
