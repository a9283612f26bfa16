// Answers out of the page's own file: a report holds what the server would have said, for one window and filter.
// Searching, ordering, paging and zooming, which the server does elsewhere, happen here.

import { identityOf, isChosen, patternOf } from "../lib/identity.ts";
import { readKeys, type SortableColumn, sortedRows } from "../lib/sorting.ts";
import { answerFrom, type Parameters, ProblemError } from "./client.ts";
import { type Cut, cutAt } from "./report-sandwich.ts";
import type { Flamegraph, FunctionRow, Functions, Leaks, RecordingSummary, SiteRow, Sites, Timeline } from "./types.ts";

/** What the file says about itself, and its answers. */
export interface Report {
  schema: string;
  made_at: string;
  name: string;
  title: string;
  from_ns: number;
  to_ns: number;
  filters: Record<string, string>;
  left_out: string[];
  stripped: boolean;
  answers: { document: string; parameters: Record<string, unknown>; body: unknown }[];
}

/** The id of the only recording of a report. */
export const REPORT_ID = "r1";
const ELEMENT = "heaptrace-report";

/** This page is a report: a file with its answers inside. */
export const IS_REPORT = typeof document !== "undefined" && document.getElementById(ELEMENT) !== null;

let report: Report | undefined;
let answers = new Map<string, unknown>();

/** The report that this page is; `undefined`: there is a server. */
export function currentReport(): Report | undefined {
  return report;
}

/** Reads the report out of the page's file, if it holds one. */
export async function openReport(): Promise<void> {
  const text = document.getElementById(ELEMENT)?.textContent;
  if (!text) return;
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  useReport(JSON.parse(await new Response(plain).text()) as Report);
}

/** From here on every answer comes from `next`. */
export function useReport(next: Report | undefined): void {
  report = next;
  answerFrom(next && answerFromReport);
  answers = new Map(next?.answers.map(({ document, parameters, body }) => [key(document, parameters), body]));
}

function key(document: string, parameters: Record<string, unknown>): string {
  return `${document}?${Object.keys(parameters)
    .sort()
    .map((name) => `${name}=${String(parameters[name])}`)
    .join("&")}`;
}

/** Whether the report has the answer to a question. */
export function reportHas(document: string, parameters: Record<string, unknown>): boolean {
  return answers.has(key(document, parameters));
}

/** The answer that the server would give, or its refusal. */
export function answerFromReport(path: string, parameters: Parameters): unknown {
  if (!report) throw new Error("this page is no report");
  if (path === "recordings") return { schema: "heaptrace.recordings/1", recordings: [summary(report)] };
  const [, , name = "", site] = path.split("/");
  if (name === "flamegraph") {
    const cut = sandwiched(parameters);
    if (cut) return cut;
  }
  if (
    ["from", "to", "at", "focus", "ignore", "hide", "show_from", "transform"].some((word) =>
      asksFor(name, word, parameters),
    )
  )
    throw refusal("A report contains one window and one filter only.");
  switch (name) {
    case "flamegraph": {
      const { metric = "live", unit = "bytes", inverted = false } = parameters;
      return subtree(find<Flamegraph>(name, { metric, unit, inverted }), Number(parameters["root"] ?? 0));
    }
    case "functions": {
      const { metric = "live", unit = "bytes", by = "function" } = parameters;
      return functionRows(find<Functions>(name, { metric, unit, by }), parameters);
    }
    case "sites":
      return site === undefined ? siteRows(find<Sites>(name, {}), parameters) : find("site", { site });
    case "leaks": {
      const leaks = find<Leaks>(name, {});
      return {
        ...leaks,
        sites: leaks.sites.slice(0, Number(parameters["limit"] ?? leaks.sites.length)),
        functions: leaks.functions?.slice(0, Number(parameters["functions"] ?? 0)),
      };
    }
    case "memory":
    case "memory_history":
      return find(name, {});
    case "pins":
      return find(name, { by: parameters["by"] ?? "function", unit: parameters["unit"] ?? "4k" });
    case "breakdown":
      return find(name, { by: parameters["by"] ?? "function" });
    case "timeline": {
      const timeline = find<Timeline>(name, {});
      const wanted = String(parameters["series"] ?? "").split(",");
      return { ...timeline, series: timeline.series.filter((series) => wanted.includes(series.name)) };
    }
    default:
      return find(name, {});
  }
}

/** The halves of a sandwich: the graph cut at a function that it shows. */
function sandwiched(parameters: Parameters): Flamegraph | undefined {
  const others = ["from", "to", "at", "ignore", "hide", "show", "module", "thread", "root", "inverted"];
  if (others.some((word) => parameters[word] !== undefined)) return undefined;
  const cuts: Cut[] = ["focus", "show_from"];
  const [cut, ...more] = cuts.filter((word) => parameters[word] !== undefined);
  if (cut === undefined || more.length > 0) return undefined;
  const { metric = "live", unit = "bytes" } = parameters;
  const graph = find<Flamegraph>("flamegraph", { metric, unit, inverted: false });
  // An address may hold a name alone, which means every function that has it.
  const known = graph.frames.flatMap((frame) => [identityOf(frame), frame.name]);
  const chosen = known.find((identity) => patternOf(identity) === parameters[cut]);
  if (chosen === undefined) return undefined;
  // The table knows the whole sum if the function is in it, and if it is one row there.
  const named = find<Functions>("functions", { metric, unit, by: "function" }).rows.filter((row) =>
    isChosen(row, chosen),
  );
  return cutAt(graph, (frame) => isChosen(frame, chosen), cut, named.length === 1 ? named[0]?.cum : undefined);
}

/** The timeline is there as a whole, whichever part of it is shown. */
function asksFor(document: string, word: string, parameters: Parameters): boolean {
  return parameters[word] !== undefined && document !== "timeline";
}

function find<T>(document: string, parameters: Record<string, unknown>): T {
  const found = answers.get(key(document, parameters));
  if (found === undefined) throw refusal("This report does not contain it.");
  return found as T;
}

function refusal(detail: string): ProblemError {
  return new ProblemError({
    type: "about:blank",
    title: "Not in this report",
    status: 404,
    detail: `${detail} Open the recording with “heaptrace server” to ask for more.`,
    parameter: null,
  });
}

function summary({ name, title }: Report): RecordingSummary {
  return {
    id: REPORT_ID,
    name,
    title,
    started_at: null,
    duration_ns: null,
    state: "ready",
    file: "as_read",
    progress: { done_bytes: 0, total_bytes: 0, events: 0, events_per_second: 0 },
    error: null,
  };
}

/** A flame graph from one of its rows down, as the server cuts it. */
export function subtree(graph: Flamegraph, root: number): Flamegraph {
  const { rows } = graph;
  const at = root === 0 ? 0 : rows.id.findIndex((id, row) => id === root && rows.folded[row] === 0);
  if (at === 0) return graph;
  if (at < 0) throw refusal("The frame is too narrow for the detail that the report was made with.");
  // Rows are in pre-order: the subtree is what follows until a row whose parent lies before it.
  let end = at + 1;
  while (end < rows.id.length && (rows.parent[end] ?? 0) >= at) end += 1;
  const ancestors: Flamegraph["ancestors"] = [];
  for (let above = at; above !== 0; ) {
    above = rows.parent[above] ?? 0;
    ancestors.unshift({ id: rows.id[above] ?? 0, frame: rows.frame[above] ?? null, value: rows.value[above] ?? 0 });
  }
  const part = <T>(column: readonly T[]) => column.slice(at, end);
  return {
    ...graph,
    ancestors,
    rows: {
      id: part(rows.id),
      parent: part(rows.parent).map((parent) => Math.max(0, parent - at)),
      frame: part(rows.frame),
      value: part(rows.value),
      own: part(rows.own),
      folded: part(rows.folded),
    },
  };
}

/** The page writes patterns for the server: `(?i)` in front where case does not matter. */
function tester(pattern: unknown): (text: string | null | undefined) => boolean {
  if (typeof pattern !== "string" || pattern === "") return () => true;
  const plain = pattern.replace(/^\(\?i\)/, "");
  const regex = new RegExp(plain, plain === pattern ? "" : "i");
  return (text) => regex.test(text ?? "");
}

function paged<T>(rows: T[], parameters: Parameters): T[] {
  const offset = Number(parameters["offset"] ?? 0);
  return rows.slice(offset, offset + Number(parameters["limit"] ?? rows.length));
}

/** The order that `sort` asks for: of figures the largest first, of texts A. */
function inOrder<Row>(rows: Row[], sort: unknown, columns: SortableColumn<Row>[]): Row[] {
  const first = columns[0]?.id ?? "";
  const keys = readKeys(
    typeof sort === "string" ? sort : undefined,
    columns.map(({ id }) => id),
    { column: first, reversed: false },
  );
  return sortedRows(rows, columns, keys);
}

const FUNCTION_COLUMNS: SortableColumn<FunctionRow>[] = [
  { id: "flat", numeric: true, value: (row) => Math.abs(row.flat) },
  { id: "cum", numeric: true, value: (row) => Math.abs(row.cum) },
  { id: "name", value: (row) => row.name },
  { id: "other", numeric: true, value: (row) => Math.abs(row.flat_other) },
  { id: "module", value: (row) => row.module ?? "" },
  { id: "source", value: (row) => `${row.file ?? ""}:${row.line ?? ""}` },
];

function functionRows(table: Functions, parameters: Parameters): Functions {
  const test = tester(parameters["search"]);
  const found = table.rows.filter((row) => test(row.name));
  const total_rows = parameters["search"] === undefined ? table.total_rows : found.length;
  return { ...table, total_rows, rows: paged(inOrder(found, parameters["sort"], FUNCTION_COLUMNS), parameters) };
}

const amount = (id: "live" | "allocated" | "freed" | "leaked" | "at_peak" | "temporary") => ({
  id,
  numeric: true,
  value: (site: SiteRow) => site[id].bytes,
});
const SITE_COLUMNS: SortableColumn<SiteRow>[] = [
  ...(["live", "allocated", "freed", "leaked", "at_peak", "temporary"] as const).map(amount),
  { id: "count", numeric: true, value: (site) => site.allocated.count },
  { id: "mean", numeric: true, value: (site) => site.allocated.bytes / Math.max(1, site.allocated.count) },
  { id: "lifetime", numeric: true, value: (site) => site.lifetimes.p50_ns },
  { id: "trend", numeric: true, value: (site) => site.allocated.bytes - site.freed.bytes },
  { id: "name", value: (site) => site.function ?? site.offset ?? site.id },
  { id: "source", value: (site) => `${site.file ?? site.module ?? ""}:${site.line ?? ""}` },
];

function siteRows(table: Sites, parameters: Parameters): Sites {
  const test = tester(parameters["search"]);
  const found = table.sites.filter((site) => [site.function, site.file, site.module].some(test));
  const total_sites = parameters["search"] === undefined ? table.total_sites : found.length;
  return { ...table, total_sites, sites: paged(inOrder(found, parameters["sort"], SITE_COLUMNS), parameters) };
}
