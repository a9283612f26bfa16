// Types of the C++ standard library as a programmer writes them: `std::string`, without arguments that are the default.

/** Names that are longer are left as they are. */
const LONGEST = 3000;
/** As many results are kept: the same few names are drawn again and again. */
const KEPT = 5000;
const known = new Map<string, string>();

/**
 * `std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >` is `std::string`, and
 * `std::vector<int, std::allocator<int> >` is `std::vector<int>`. A name whose brackets do not match stays as it is.
 */
export function plainTypes(name: string): string {
  if (!name.includes("std::") || name.length > LONGEST) return name;
  let plain = known.get(name);
  if (plain === undefined) {
    const reader = new Reader(name);
    plain = reader.read("");
    if (!reader.isSound) plain = name;
    if (known.size >= KEPT) known.clear();
    known.set(name, plain);
  }
  return plain;
}

/** Classes whose last arguments are an allocator, an order or the like, unless the program chose another. */
const WITH_DEFAULTS = new Set(
  [
    "vector deque list forward_list set multiset map multimap unordered_set unordered_multiset unordered_map",
    "unordered_multimap unique_ptr queue stack priority_queue _Vector_base _Deque_base _List_base _Fwd_list_base",
  ]
    .join(" ")
    .split(" ")
    .map((name) => `std::${name}`),
);

/** What begins with `basic_` and is named without it, of char and of wchar_t. */
const OF_CHARACTERS =
  /^std::basic_(string|string_view|[io]?stream|iostream|[io]?fstream|[io]?stringstream|streambuf|filebuf|stringbuf|ios)$/;
const PREFIX_OF: Partial<Record<string, string>> = {
  char: "",
  wchar_t: "w",
  char8_t: "u8",
  char16_t: "u16",
  char32_t: "u32",
};

class Reader {
  isSound = true;
  private at = 0;
  private readonly name: string;

  constructor(name: string) {
    this.name = name;
  }

  /** Up to one of these signs outside of brackets. */
  read(until: string): string {
    let out = "";
    while (this.at < this.name.length) {
      const c = this.name.charAt(this.at);
      if (isOperator(this.name, this.at)) out += c;
      else if (until.includes(c)) return withoutInlineNamespace(out);
      else if (c === "<") {
        const [head = ""] = /[\w:$~]+$/.exec(out) ?? [];
        this.at += 1;
        out = out.slice(0, out.length - head.length) + plainTemplate(withoutInlineNamespace(head), this.list());
      } else if (c === "(" || c === "[" || c === "{") {
        const end = c === "(" ? ")" : c === "[" ? "]" : "}";
        this.at += 1;
        out += c + this.read(end);
        if (this.name.charAt(this.at) !== end) this.isSound = false;
        out += end;
      } else if (c === ")" || c === "]" || c === "}" || c === ">") {
        this.isSound = false;
        out += c;
      } else out += c;
      this.at += 1;
    }
    if (until !== "") this.isSound = false;
    return withoutInlineNamespace(out);
  }

  /** The arguments of a template; the last sign that was read is its `>`. */
  private list(): string[] {
    const all: string[] = [];
    for (;;) {
      all.push(this.read(",>").trim());
      if (this.name.charAt(this.at) !== ",") return all;
      this.at += 1;
    }
  }
}

function plainTemplate(head: string, all: string[]): string {
  const [first = ""] = all;
  const [, stream] = OF_CHARACTERS.exec(head) ?? [];
  const prefix = PREFIX_OF[first];
  const usual = new Set([`std::char_traits<${first}>`, `std::allocator<${first}>`]);
  if (stream !== undefined && prefix !== undefined && all.slice(1).every((one) => usual.has(one)))
    return `std::${prefix}${stream}`;
  if (!WITH_DEFAULTS.has(head)) return `${head}<${all.join(", ")}>`;
  const kept = [...all];
  while (kept.length > 1 && isDefault(kept.at(-1) ?? "", first)) kept.pop();
  return `${head}<${kept.join(", ")}>`;
}

function isDefault(argument: string, first: string): boolean {
  if (argument.startsWith("std::allocator<")) return true;
  const ofFirst = /^std::(?:less|hash|equal_to|default_delete|deque|vector)<(.*)>$/.exec(argument);
  // Of `unique_ptr<char []>` the deleter is `default_delete<char []>`.
  return ofFirst?.[1] === first;
}

function withoutInlineNamespace(text: string): string {
  return text.replace(/\bstd::__(?:cxx11|1)::/g, "std::");
}

/** `->`, `operator<`, `operator<<`, `operator()`: not brackets. */
export function isOperator(name: string, at: number): boolean {
  const c = name.charAt(at);
  const before = name.slice(Math.max(0, at - 10), at);
  if (c === ">" && before.endsWith("-")) return true;
  if (c === "<" || c === ">") return /operator[<>]?$/.test(before);
  return /operator\(?$/.test(before) && (c === ")" || name.charAt(at + 1) === ")");
}
