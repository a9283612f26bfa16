// Large JSON in steps: to parse megabytes at once takes longer than a page may stand still. The outer objects are taken
// apart here, the elements of their lists are handed to JSON.parse piece by piece.

/** Letters of a piece. */
const PIECE = 100_000;
/** Letters of a text that is not taken apart: to parse it takes some milliseconds, to take it apart twice as long. */
const SHORT = 500_000;
/** Objects in objects that are taken apart; what is deeper belongs to a piece. */
const DEEPEST = 3;

/** What `JSON.parse` makes of a text, one piece a step. The text must be JSON, as a server writes it: without blanks. */
export function* jsonSteps<T>(text: string): Generator<void, T> {
  return text.length < SHORT ? JSON.parse(text) : ((yield* valueSteps(text, 0, text.length, 0)) as T);
}

function* valueSteps(text: string, from: number, end: number, depth: number): Generator<void, unknown> {
  if (end - from < PIECE || depth === DEEPEST) return JSON.parse(text.slice(from, end));
  if (text[from] === "{") return yield* objectSteps(text, from, end, depth);
  if (text[from] === "[") return yield* listSteps(text, from, end);
  return JSON.parse(text.slice(from, end));
}

function* objectSteps(text: string, from: number, end: number, depth: number): Generator<void, unknown> {
  const members: [string, unknown][] = [];
  for (let at = from + 1; at < end - 1; ) {
    const colon = endOfText(text, at);
    const name: string = JSON.parse(text.slice(at, colon));
    const until = yield* endOfValue(text, colon + 1);
    members.push([name, yield* valueSteps(text, colon + 1, until, depth + 1)]);
    // Behind a comma.
    at = until + 1;
  }
  return Object.fromEntries(members);
}

function* listSteps(text: string, from: number, end: number): Generator<void, unknown[]> {
  const list: unknown[] = [];
  let start = from + 1;
  for (let at = start; at < end - 1; ) {
    const until = yield* endOfValue(text, at);
    at = until + 1;
    if (at - start < PIECE && at < end - 1) continue;
    for (const item of JSON.parse(`[${text.slice(start, until)}]`)) list.push(item);
    start = at;
    yield;
  }
  return list;
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
const OPEN = [0x5b, 0x7b] as const;
const CLOSE = [0x5d, 0x7d] as const;

/** Behind the value that begins at a place. */
function* endOfValue(text: string, from: number): Generator<void, number> {
  let depth = 0;
  let rest = PIECE;
  for (let at = from; at < text.length; at += 1) {
    const c = text.charCodeAt(at);
    if (c === QUOTE) {
      const behind = endOfText(text, at);
      rest -= behind - at;
      at = behind - 1;
      if (depth === 0) return behind;
    } else if (c === OPEN[0] || c === OPEN[1]) depth += 1;
    else if (c === CLOSE[0] || c === CLOSE[1]) {
      // Of the object or list around a number or word.
      if (depth === 0) return at;
      depth -= 1;
      if (depth === 0) return at + 1;
    } else if (c === COMMA && depth === 0) return at;
    rest -= 1;
    if (rest <= 0) {
      rest = PIECE;
      yield;
    }
  }
  return text.length;
}

/** Behind the text that begins with the quote at a place. */
function endOfText(text: string, from: number): number {
  for (let at = text.indexOf('"', from + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let escapes = 0;
    while (text.charCodeAt(at - 1 - escapes) === BACKSLASH) escapes += 1;
    if (escapes % 2 === 0) return at + 1;
  }
  return text.length;
}
