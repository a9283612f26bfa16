// What the server can write, and which of the page's choices go with it.
import type { Parameters } from "../api/client.ts";

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

/** Lets the browser save what an address answers with. */
export function download(url: string): void {
  const link = document.createElement("a");
  link.href = url;
  link.download = "";
  link.click();
}
