// What the server can write, and which of the page's choices go with it.
import type { Parameters } from "../api/client.ts";
import { serverPattern } from "../lib/pattern.ts";
import type { PageSearch, View } from "../lib/search-params.ts";

interface ExportFormat {
  id: string;
  label: string;
  hint: string;
  parameters: (request: { metric: Parameters; window: Parameters; filters: Parameters }) => Parameters;
}

const chosen: ExportFormat["parameters"] = ({ metric, filters }) => ({ ...metric, ...filters });
const everything: ExportFormat["parameters"] = () => ({});

export const EXPORTS: readonly ExportFormat[] = [
  { id: "folded", label: "Folded stacks", hint: ".folded", parameters: chosen },
  { id: "speedscope", label: "speedscope", hint: ".json", parameters: chosen },
  { id: "pprof", label: "pprof", hint: ".pb.gz", parameters: chosen },
  { id: "heaptrack", label: "heaptrack", hint: ".heaptrack", parameters: everything },
  { id: "dhat", label: "DHAT", hint: ".json", parameters: everything },
  { id: "massif", label: "massif", hint: ".massif", parameters: everything },
  { id: "firefox", label: "Firefox Profiler", hint: ".json", parameters: everything },
  { id: "parquet", label: "Parquet, every block", hint: ".parquet", parameters: everything },
  { id: "json", label: "JSON, every event", hint: ".json", parameters: everything },
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
        parameters: { ...metric, ...filters, inverted: search.inverted, root: search.root, max_nodes: 10_000 },
      };
    case "functions":
      return { document: "functions", parameters: { ...metric, ...filters, by: search.by, search: pattern } };
    case "sites":
      return search.site === undefined
        ? { document: "sites", parameters: { ...window, ...filters, search: pattern } }
        : { document: `sites/${search.site}`, parameters: { ...window, ...filters } };
    case "leaks":
    case "lifetimes":
    case "allocations":
    case "threads":
      return { document: view, parameters: { ...window, ...filters } };
    case "recording":
      return { document: "modules", parameters: {} };
    case "overview":
      return { document: "", parameters: {} };
    case "compare":
    case "source":
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
