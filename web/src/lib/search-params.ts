// The state of the page as it is in the URL: everything but the recording and the view, which are its path.
// Unknown or malformed parts are dropped, so that an old or a mistyped link opens with what can be understood.
import { type Patch, readPatch, writePatch } from "./patch.ts";
import { SORT_TEXT } from "./sorting.ts";
import { readTime, readWindow, type Window, writeTime, writeWindow } from "./time.ts";

export const VIEWS = [
  "overview",
  "flamegraph",
  "calltree",
  "functions",
  "sites",
  "leaks",
  "lifetimes",
  "allocations",
  "threads",
  "compare",
  "memory",
  "pins",
  "map",
  "churn",
  "sql",
  "recording",
  "source",
] as const;
export type View = (typeof VIEWS)[number];

export const METRICS = ["live", "peak", "leaked", "allocated", "freed", "grown", "temporary"] as const;
export const GROUPS = ["function", "program", "file", "module", "thread", "site", "size_class"] as const;
export const TRACKS = ["count", "threads"] as const;
export const FOLDS = ["bytes", "selected", "rss", "count", "rate", "threads"] as const;
export type FoldName = (typeof FOLDS)[number];
/** What is given back as a whole, of pinned pages. */
export const PIN_UNITS = ["4k", "2M", "slab"] as const;
export const PIN_GROUPS = ["function", "site", "age", "thread"] as const;
export const LAYERS = ["function", "module", "thread", "site", "language"] as const;
/** What colours of the flame graph can be by. */
export const COLOR_GROUPS = ["module", "file", "namespace", "function", "language"] as const;
export const CHANGE_KINDS = ["grew", "shrank", "new", "gone"] as const;
export const VERDICTS = ["growing", "never_freed", "bounded", "one_time", "unclear"] as const;
export type VerdictName = (typeof VERDICTS)[number];
const LIFETIME_CLASSES = ["leaked", "temporary", "freed"] as const;

export type MetricName = (typeof METRICS)[number];
export type GroupName = (typeof GROUPS)[number];
export type PinUnitName = (typeof PIN_UNITS)[number];
export type PinGroupName = (typeof PIN_GROUPS)[number];
export type LayerName = (typeof LAYERS)[number];
export type ColorGroup = (typeof COLOR_GROUPS)[number];
export type TrackName = (typeof TRACKS)[number];
export type ChangeKind = (typeof CHANGE_KINDS)[number];

/** Filters, with the names that the server gives them. Values are as the user typed them. */
export const FILTERS = [
  "focus",
  "ignore",
  "hide",
  "show",
  "show_from",
  "transform",
  "module",
  "thread",
  "context",
  "freed_by",
  "frames",
  "min_size",
  "max_size",
  "min_lifetime",
  "max_lifetime",
  "lifetime",
  "address",
] as const;
/** Filters that have a few values. `frames=user` is what counts without it. */
const CHOICES: Partial<Record<string, readonly string[]>> = { lifetime: LIFETIME_CLASSES, frames: ["all"] };
export type FilterName = (typeof FILTERS)[number];
export type Filters = Partial<Record<FilterName, string>>;

export interface PageSearch {
  /** The window under the brush; the innermost of `zoom`, or everything, if there is none. */
  window?: Window;
  /** Committed windows, outermost first; each lies inside the one before. */
  zoom?: Window[];
  /** What the timeline shows, if it is not the innermost committed window. */
  shown?: Window;
  /** The instant of metric `live`; else the end of the window. */
  at?: number;
  /** Two instants to compare. */
  a?: number;
  b?: number;
  metric?: MetricName;
  unit?: "count";
  filters?: Filters;
  /** Text to find. */
  q?: string;
  /** The node that the flame graph or call tree starts from. */
  root?: number;
  inverted?: true;
  /** The flame graph grows upwards. */
  upwards?: true;
  /** Direct recursion is drawn as one frame. */
  collapse?: true;
  /** The flame graph of what was freed is by the backtraces of the frees. */
  freeing?: true;
  /** The flame graph, and that of a comparison, is of the resident pages that live blocks hold. */
  pinned?: true;
  /** A table of functions is beside the flame graph. */
  split?: true;
  /** What colours are by; else the page chooses by the contents of the graph. */
  color?: ColorGroup;
  by?: GroupName;
  sort?: string;
  /** The selected function's name, lit in every view. */
  selected?: string;
  /** The site that is open. */
  site?: string;
  /** Another recording to compare with. */
  other?: string;
  /** Two windows to compare. */
  ranges?: readonly [Window, Window];
  /** A comparison's first side is scaled to the total of the second. */
  normalize?: true;
  /** The comparison as a flame graph. */
  graph?: true;
  /** Of a comparison: only what changed has a width. */
  changes?: true;
  /** Of a comparison: only rows of this kind. */
  kind?: ChangeKind;
  tracks?: TrackName[];
  /** Tracks that are folded. */
  folded?: FoldName[];
  /** What a layer of live memory over time is. */
  layers?: LayerName;
  /** What a row of pins is. */
  pins?: PinGroupName;
  /** What of pinned pages is given back as a whole, if not a page of 4 KiB. */
  pin_unit?: Exclude<PinUnitName, "4k">;
  /** Functions whose leaks are suppressed. */
  suppress?: string[];
  /** Sites that the built-in suppressions name are listed. */
  unsuppressed?: true;
  /** Only leaks with this verdict. */
  verdict?: VerdictName;
  /** Leaks are listed by site. */
  persite?: true;
  /** The function whose callers and callees are drawn. */
  sandwich?: string;
  /** The source file that is open. */
  file?: string;
  line?: number;
  /** The question in SQL that was asked last. */
  sql?: string;
  /** The lines of the call tree that are open. */
  open?: string;
  /** The row of the view's table that is selected. */
  row?: string;
  /** The chosen cells of the map of sizes and lifetimes. */
  patch?: Patch;
}

type Raw = Record<string, string>;

function oneOf<const T extends readonly string[]>(choices: T, text: string | undefined): T[number] | undefined {
  return choices.find((choice) => choice === text);
}

function readMany<T>(
  text: string | undefined,
  separator: string,
  read: (part: string) => T | undefined,
): T[] | undefined {
  if (!text) return undefined;
  const parts = text.split(separator).map(read);
  const good = parts.filter((part) => part !== undefined);
  return good.length > 0 && good.length === parts.length ? good : undefined;
}

function readPair(text: string | undefined): readonly [Window, Window] | undefined {
  const [first, second, ...more] = readMany(text, "~", readWindow) ?? [];
  return first && second && more.length === 0 ? [first, second] : undefined;
}

function nested(windows: Window[] | undefined): Window[] | undefined {
  return windows?.every((inner, i) => {
    const outer = windows[i - 1];
    return outer === undefined || (inner.from >= outer.from && inner.to <= outer.to);
  })
    ? windows
    : undefined;
}

/** The server's ids of rows stay below 2^53, so that they are numbers here. */
function readRow(text: string): number | undefined {
  const row = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  return Number.isSafeInteger(row) ? row : undefined;
}

/** A list of texts; anything else is dropped. */
function readTexts(text: string | undefined): string[] | undefined {
  try {
    const value: unknown = JSON.parse(text ?? "[]");
    const texts = Array.isArray(value)
      ? value.filter((one): one is string => typeof one === "string" && one !== "")
      : [];
    return texts.length > 0 ? texts.slice(0, 200) : undefined;
  } catch {
    return undefined;
  }
}

/** The state that a query string stands for. */
export function readSearch(query: string): PageSearch {
  const raw: Raw = {};
  for (const [key, value] of new URLSearchParams(query)) raw[key] ??= value;
  const root = readRow(raw["root"] ?? "");
  const filters: Filters = {};
  for (const name of FILTERS) {
    const value = raw[name];
    const known = CHOICES[name];
    if (value && (known === undefined || known.includes(value))) filters[name] = value;
  }
  const search: PageSearch = {
    window: readWindow(raw["window"] ?? ""),
    zoom: nested(readMany(raw["zoom"], "~", readWindow)),
    shown: readWindow(raw["shown"] ?? ""),
    at: readTime(raw["at"] ?? ""),
    a: readTime(raw["a"] ?? ""),
    b: readTime(raw["b"] ?? ""),
    metric: oneOf(METRICS, raw["metric"]),
    unit: oneOf(["count"], raw["unit"]),
    filters: Object.keys(filters).length > 0 ? filters : undefined,
    q: raw["q"] || undefined,
    root,
    inverted: raw["inverted"] === "1" || undefined,
    upwards: raw["upwards"] === "1" || undefined,
    collapse: raw["collapse"] === "1" || undefined,
    freeing: raw["freeing"] === "1" || undefined,
    pinned: raw["pinned"] === "1" || undefined,
    split: raw["split"] === "1" || undefined,
    color: oneOf(COLOR_GROUPS, raw["color"]),
    by: oneOf(GROUPS, raw["by"]),
    sort: SORT_TEXT.test(raw["sort"] ?? "") ? raw["sort"] : undefined,
    selected: raw["selected"] || undefined,
    site: /^s\d{1,10}$/.test(raw["site"] ?? "") ? raw["site"] : undefined,
    other: /^r\d{1,6}$/.test(raw["other"] ?? "") ? raw["other"] : undefined,
    ranges: readPair(raw["ranges"]),
    normalize: raw["normalize"] === "1" || undefined,
    graph: raw["graph"] === "1" || undefined,
    changes: raw["changes"] === "1" || undefined,
    kind: oneOf(CHANGE_KINDS, raw["kind"]),
    tracks: readMany(raw["tracks"], ",", (name) => oneOf(TRACKS, name)),
    folded: readMany(raw["folded"], ",", (name) => oneOf(FOLDS, name)),
    layers: oneOf(LAYERS, raw["layers"]),
    pins: oneOf(PIN_GROUPS, raw["pins"]),
    pin_unit: oneOf(["2M", "slab"], raw["pin_unit"]),
    suppress: readTexts(raw["suppress"]),
    unsuppressed: raw["unsuppressed"] === "1" || undefined,
    verdict: oneOf(VERDICTS, raw["verdict"]),
    persite: raw["persite"] === "1" || undefined,
    sandwich: raw["sandwich"] || undefined,
    file: raw["file"] || undefined,
    line: /^\d{1,9}$/.test(raw["line"] ?? "") ? Number(raw["line"]) : undefined,
    sql: raw["sql"] || undefined,
    open: /^(\*|[0-9a-zR.]{1,16000})$/.test(raw["open"] ?? "") ? raw["open"] : undefined,
    row: /^[0-9a-z]{1,16}$/.test(raw["row"] ?? "") ? raw["row"] : undefined,
    patch: readPatch(raw["patch"] ?? ""),
  };
  return dropUndefined(search);
}

/** The query string of a state, without `?`; keys in a fixed order, so that equal states are equal links. */
export function writeSearch(search: PageSearch): string {
  const out = new URLSearchParams();
  const put = (key: string, value: string | undefined) => {
    if (value !== undefined && value !== "") out.set(key, value);
  };
  put("zoom", search.zoom?.map(writeWindow).join("~"));
  put("window", search.window && writeWindow(search.window));
  put("shown", search.shown && writeWindow(search.shown));
  put("at", search.at === undefined ? undefined : writeTime(search.at));
  put("a", search.a === undefined ? undefined : writeTime(search.a));
  put("b", search.b === undefined ? undefined : writeTime(search.b));
  put("metric", search.metric);
  put("unit", search.unit);
  for (const name of FILTERS) put(name, search.filters?.[name]);
  put("q", search.q);
  put("root", search.root?.toString());
  put("inverted", search.inverted && "1");
  put("upwards", search.upwards && "1");
  put("collapse", search.collapse && "1");
  put("freeing", search.freeing && "1");
  put("pinned", search.pinned && "1");
  put("split", search.split && "1");
  put("color", search.color);
  put("by", search.by);
  put("sort", search.sort);
  put("selected", search.selected);
  put("site", search.site);
  put("other", search.other);
  put("ranges", search.ranges?.map(writeWindow).join("~"));
  put("normalize", search.normalize && "1");
  put("graph", search.graph && "1");
  put("changes", search.changes && "1");
  put("kind", search.kind);
  put("tracks", search.tracks?.join(","));
  put("folded", search.folded?.join(","));
  put("layers", search.layers);
  put("pins", search.pins);
  put("pin_unit", search.pin_unit);
  put("suppress", search.suppress && JSON.stringify(search.suppress));
  put("unsuppressed", search.unsuppressed && "1");
  put("verdict", search.verdict);
  put("persite", search.persite && "1");
  put("sandwich", search.sandwich);
  put("file", search.file);
  put("line", search.line?.toString());
  put("sql", search.sql);
  put("open", search.open);
  put("row", search.row);
  put("patch", search.patch && writePatch(search.patch));
  return out.toString();
}

function dropUndefined<T extends object>(value: T): T {
  return Object.fromEntries(Object.entries(value).filter(([, part]) => part !== undefined)) as T;
}

/** The window that every view answers for; `undefined` = the whole recording. */
export function effectiveWindow(search: PageSearch): Window | undefined {
  return search.window ?? search.zoom?.at(-1);
}
