// Server-sent events of one recording: how far indexing is, and how far a running program has come.
import { apiUrl } from "./client.ts";
import type { Live } from "./types.ts";

/** Follows a recording until the returned function is called. The browser reconnects by itself. */
export function followRecording(recording: string, onLive: (live: Live) => void, onLost: () => void): () => void {
  const source = new EventSource(apiUrl(`recordings/${encodeURIComponent(recording)}/live`));
  source.onmessage = (event: MessageEvent<string>) => {
    const live = readLive(event.data);
    if (live) onLive(live);
  };
  source.onerror = onLost;
  return () => source.close();
}

function readLive(text: string): Live | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && "revision" in value ? (value as Live) : undefined;
  } catch {
    return undefined;
  }
}
