// Function names in small space: what to keep of a long demangled C++ or Rust name.
import { isOperator, plainTypes } from "./plain-types.ts";

/**
 * A name of at most `limit` characters: nested template and argument lists are folded to `<…>` and `(…)`, the deepest
 * first; what is still too long loses its middle.
 */
export function shortName(name: string, limit = 120): string {
  if (name.length <= limit) return name;
  // Rust's `<Type as Trait>::method` begins with a bracket that says what the name is about.
  const least = name.startsWith("<") ? 1 : 0;
  let folded = name;
  for (const depth of [3, 2, 1, 0]) {
    if (depth < least) break;
    folded = foldBrackets(name, depth);
    if (folded.length <= limit) return folded;
  }
  const half = Math.floor((limit - 1) / 2);
  return `${folded.slice(0, half)}…${folded.slice(folded.length - half)}`;
}

/** Folds what lies in more than `keep` brackets. */
function foldBrackets(name: string, keep: number): string {
  let out = "";
  let depth = 0;
  for (let i = 0; i < name.length; i += 1) {
    const c = name.charAt(i);
    const opens = c === "<" || c === "(";
    const closes = c === ">" || c === ")";
    if ((!opens && !closes) || isOperator(name, i)) {
      if (depth <= keep) out += c;
    } else if (opens) {
      if (depth < keep) out += c;
      else if (depth === keep) out += c === "<" ? "<…>" : "(…)";
      depth += 1;
    } else if (depth > 0) {
      depth -= 1;
      if (depth < keep) out += c;
    } else {
      out += c;
    }
  }
  return out;
}

/** The last part of a path. */
export function fileName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** `a.c:12`, `a.c`, or nothing. */
export function location(file: string | null | undefined, line: number | null | undefined): string | undefined {
  if (!file) return undefined;
  return line ? `${fileName(file)}:${line}` : fileName(file);
}

/**
 * A name for a table: without return type, argument list, ABI tags and `const` behind it, so that the distinguishing word
 * comes first. Lists of templates are folded. The full name belongs into a tooltip.
 */
export function bareName(full: string, limit = 120): string {
  const name = plainTypes(full);
  const ends = topLevel(name, "(");
  let bare = name;
  // Of `f(int)::{lambda(int)#3}::operator()(int) const` only the last list is an argument list.
  const last = ends.at(-1);
  if (last !== undefined && /^\)?[^()]*$/.test(afterList(name, last)) && !isAnonymous(name, last))
    bare = name.slice(0, last);
  bare = withoutReturnType(bare);
  bare = bare.replace(/\[abi:[^\]]*\]/g, "");
  return shortName(bare === "" ? name : bare, limit);
}

/**
 * Python calls the code of every file `<module>`, and functions without a name `<lambda>`, `<listcomp>` and the like: the
 * file tells them apart.
 */
export function placedName(name: string, file: string | null | undefined): string {
  return file && /^<\w+>$/.test(name) ? `${name} ${fileName(file)}` : name;
}

/** A function's name for a table's row: bare, and with the file where it takes one to tell it apart. */
export function rowName(name: string, file: string | null | undefined, limit?: number): string {
  return placedName(bareName(name, limit), file);
}

/** Positions of a sign outside of all brackets. */
function topLevel(name: string, sign: string): number[] {
  const found: number[] = [];
  let depth = 0;
  for (let i = 0; i < name.length; i += 1) {
    const c = name.charAt(i);
    if (isOperator(name, i)) continue;
    if (c === sign && depth === 0) found.push(i);
    if (c === "<" || c === "(" || c === "{" || c === "[") depth += 1;
    else if ((c === ">" || c === ")" || c === "}" || c === "]") && depth > 0) depth -= 1;
  }
  return found;
}

/** What comes after the list that begins at `open`. */
function afterList(name: string, open: number): string {
  let depth = 0;
  for (let i = open; i < name.length; i += 1) {
    if (name.charAt(i) === "(") depth += 1;
    else if (name.charAt(i) === ")") {
      depth -= 1;
      if (depth === 0)
        return name.slice(i + 1).replace(/^( const| volatile| &&?| noexcept| \[clone [^\]]*\]|\.\w+)*/, "");
    }
  }
  return "";
}

function isAnonymous(name: string, open: number): boolean {
  return name.startsWith("(anonymous", open);
}

/** Only C++ writes the type first, and only of templates: what is before the last space outside of brackets. */
function withoutReturnType(name: string): string {
  if (name.startsWith("<") || /\b(operator|decltype)\b/.test(name) || !/[<:]/.test(name)) return name;
  const at = topLevel(name, " ").at(-1);
  return at === undefined ? name : name.slice(at + 1);
}
