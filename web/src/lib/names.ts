// Function names in small space: what to keep of a long demangled C++ or Rust name.

/** Template and argument lists folded to `<…>` and `(…)`, from the outside, where the name is longer than `limit`. */
export function shortName(name: string, limit = 120): string {
  if (name.length <= limit) return name;
  const folded = foldBrackets(name);
  if (folded.length <= limit) return folded;
  const half = Math.floor((limit - 1) / 2);
  return `${folded.slice(0, half)}…${folded.slice(folded.length - half)}`;
}

function foldBrackets(name: string): string {
  let out = "";
  let depth = 0;
  for (let i = 0; i < name.length; i += 1) {
    const c = name.charAt(i);
    const previous = name.charAt(i - 1);
    const isOperator =
      (c === "<" || c === ">") && (previous === "-" || /operator[<>]?$/.test(name.slice(Math.max(0, i - 9), i)));
    if ((c === "<" || c === "(") && !isOperator) {
      if (depth === 0) out += c === "<" ? "<…>" : "(…)";
      depth += 1;
    } else if ((c === ">" || c === ")") && !isOperator && depth > 0) {
      depth -= 1;
    } else if (depth === 0) {
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
