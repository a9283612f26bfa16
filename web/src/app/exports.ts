// What the server can write, and which of the page's choices go with it.
import type { Parameters } from "../api/client.ts";
import { isOfMoment } from "../lib/moment.ts";
import { serverPattern } from "../lib/pattern.ts";
import type { PageSearch, View } from "../lib/search-params.ts";

interface ExportFormat {
  id: string;
  label: string;
  hint: string;
  /** Of what is chosen; else of everything. */
  isPart: boolean;
  parameters: (request: { metric: Parameters; window: Parameters; filters: Parameters }) => Parameters;
}

const chosen: ExportFormat["parameters"] = ({ metric, filters }) => ({ ...metric, ...filters });
/** Of a format that has all metrics, each of the window. */
const inWindow: ExportFormat["parameters"] = ({ window, filters }) => ({ ...window, ...filters });
const everything: ExportFormat["parameters"] = () => ({});

export const EXPORTS: readonly ExportFormat[] = [
  { id: "folded", label: "Folded stacks", hint: ".folded", isPart: true, parameters: chosen },
  { id: "speedscope", label: "speedscope", hint: ".json", isPart: true, parameters: inWindow },
  { id: "pprof", label: "pprof", hint: ".pb.gz", isPart: true, parameters: chosen },
  { id: "otlp", label: "OpenTelemetry", hint: ".pb", isPart: true, parameters: chosen },
  { id: "heaptrack", label: "heaptrack", hint: ".heaptrack", isPart: false, parameters: everything },
  { id: "dhat", label: "DHAT", hint: ".json", isPart: false, parameters: everything },
  { id: "massif", label: "massif", hint: ".massif", isPart: false, parameters: everything },
  { id: "firefox", label: "Firefox Profiler", hint: ".json", isPart: false, parameters: everything },
  { id: "parquet", label: "Parquet, every block", hint: ".parquet", isPart: false, parameters: everything },
  { id: "json", label: "JSON, every event", hint: ".json", isPart: false, parameters: everything },
];

/** The document that a view shows most of, for the page's state; none where a view puts several together. */
export function documentOf(
  view: View,
  search: PageSearch,
  { metric, window, filters }: { metric: Parameters; window: Parameters; filters: Parameters },
): { document: string; parameters: Parameters } | undefined {
  const pattern = search.q === undefined ? undefined : serverPattern(search.q);
  switch (view) {
    case "flamegraph":
    case "calltree":
      return {
        document: "flamegraph",
        parameters: {
          ...metric,
          ...filters,
          inverted: search.inverted,
          freeing: (view === "flamegraph" && search.freeing && metric["metric"] === "freed") || undefined,
          ...(view === "flamegraph" && search.pinned && isOfMoment(metric["metric"])
            ? { pinned: true, pin_unit: search.pin_unit, unit: "bytes" }
            : {}),
          root: search.root,
          max_nodes: 10_000,
        },
      };
    case "functions":
      return {
        document: "functions",
        parameters: { ...metric, ...filters, by: search.by ?? "program", search: pattern },
      };
    case "sites":
      return search.site === undefined
        ? { document: "sites", parameters: { ...window, ...filters, search: pattern } }
        : { document: `sites/${search.site}`, parameters: { ...window, ...filters } };
    case "leaks":
    case "lifetimes":
    case "allocations":
    case "churn":
    case "map":
    case "threads":
      return { document: view, parameters: { ...window, ...filters } };
    case "memory":
      return { document: view, parameters: { at: search.at } };
    case "pins":
      return { document: view, parameters: { at: search.at, by: search.pins, unit: search.pin_unit } };
    case "recording":
      return { document: "modules", parameters: {} };
    case "overview":
      return { document: "", parameters: {} };
    case "compare":
    case "source":
    case "sql":
      return undefined;
  }
}

/** Lets the browser save what an address answers with. */
export function download(url: string, name = ""): void {
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
}
