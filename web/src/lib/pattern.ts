// Patterns that the user types: the same text goes to the server (Rust's regular expressions) and is matched here.

export type Pattern =
  | { kind: "none" }
  | { kind: "invalid"; text: string; why: string }
  | { kind: "valid"; text: string; test: (name: string) => boolean };

/** Case does not matter unless the text has a capital letter. */
export function readPattern(text: string): Pattern {
  if (text === "") return { kind: "none" };
  try {
    const expression = new RegExp(text, ignoresCase(text) ? "i" : "");
    return { kind: "valid", text, test: (name) => expression.test(name) };
  } catch (error) {
    return { kind: "invalid", text, why: error instanceof Error ? error.message : String(error) };
  }
}

function ignoresCase(text: string): boolean {
  return text === text.toLowerCase();
}

/** What the server is asked for. */
export function serverPattern(text: string): string {
  return ignoresCase(text) ? `(?i)${text}` : text;
}

/** A pattern that matches this name and nothing else, here and at the server. */
export function exactly(name: string): string {
  return `^${quoted(name)}$`;
}

/** A pattern for a module of this file name, in whatever folder. */
export function moduleNamed(fileName: string): string {
  return `(^|/)${quoted(fileName)}$`;
}

/** A text as a pattern that matches it. */
export function quoted(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
}
