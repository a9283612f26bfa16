// Patterns that the user types: the same text goes to the server (Rust's regular expressions) and is matched here.

export type Pattern =
  | { kind: "none" }
  | { kind: "invalid"; text: string; why: string }
  | { kind: "valid"; text: string; test: (name: string) => boolean };

/** Case does not matter unless the text has a capital letter, or says so itself: `(?i)` in front, or `(?-i)`. */
export function readPattern(text: string): Pattern {
  if (text === "") return { kind: "none" };
  try {
    const { body, ignoresCase } = caseOf(text);
    const expression = new RegExp(withFullStrings(body), ignoresCase ? "i" : "");
    return { kind: "valid", text, test: (name) => expression.test(name) };
  } catch (error) {
    return { kind: "invalid", text, why: error instanceof Error ? error.message : String(error) };
  }
}

/** What is searched, and whether capitals and small letters are the same there. */
export function caseOf(text: string): { body: string; ignoresCase: boolean } {
  const [, said, body = text] = /^\(\?(-?)i\)(.*)$/s.exec(text) ?? [];
  return { body, ignoresCase: said === undefined ? body === body.toLowerCase() : said === "" };
}

/** The same text with the other rule for capitals. */
export function withOtherCase(text: string): string {
  const { body, ignoresCase } = caseOf(text);
  if (caseOf(body).ignoresCase !== ignoresCase) return body;
  return `${ignoresCase ? "(?-i)" : "(?i)"}${body}`;
}

/** What the server is asked for. */
export function serverPattern(text: string): string {
  const { body, ignoresCase } = caseOf(text);
  return `${ignoresCase ? "(?i)" : ""}${withFullStrings(body)}`;
}

/** Names are shown with `std::string`, and matched as the compiler spells it. */
function withFullStrings(body: string): string {
  return body.replace(/\bstd::string\b( ?>)?/g, (_, closes: string | undefined) => {
    const both =
      "std::(?:string|(?:__cxx11::|__1::)?basic_string<char, std::char_traits<char>, std::allocator<char> ?>)";
    return closes === undefined ? both : `${both} ?>`;
  });
}

/** Filters that take several patterns, one a line: of `focus` each must match, of the others any. */
const SEVERAL: ReadonlySet<string> = new Set(["focus", "ignore", "hide", "show"]);

export const takesSeveral = (filter: string): boolean => SEVERAL.has(filter);

/** The patterns of a filter that takes several. */
export function patternsOf(text: string | undefined): string[] {
  return (text ?? "").split("\n").filter((line) => line !== "");
}

/** The patterns with one more, which is there once. */
export function withPattern(text: string | undefined, pattern: string): string {
  return [...patternsOf(text).filter((known) => known !== pattern), pattern].join("\n");
}

/** The patterns without the one at a position; nothing where none is left. */
export function withoutPattern(text: string | undefined, at: number): string | undefined {
  return (
    patternsOf(text)
      .filter((_, i) => i !== at)
      .join("\n") || undefined
  );
}

/** For the server: what matches where any of these does; each keeps its own rule for capitals. */
export function anyPattern(patterns: readonly string[]): string {
  const [only = ""] = patterns;
  return patterns.length > 1
    ? patterns.map((pattern) => `(?:${serverPattern(pattern)})`).join("|")
    : serverPattern(only);
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
