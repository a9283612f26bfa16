// Answers `/api/v1/` as the server would, from synthetic recordings. Test fixture: development and page tests only.
import type { IncomingMessage, ServerResponse } from "node:http";
import type { KeptReplay, Live, Problem, RecordingSummary } from "../../src/api/types.ts";
import { lifetimes, sizes } from "./classes.ts";
import { allocations, leaks, site, sites } from "./leaks.ts";
import { diff, info, modules, source, threads } from "./process.ts";
import { emptyRecording, type MockRecording, tinyRecording, typicalRecording } from "./recording.ts";
import { BadParameter, type Query, type View } from "./shared.ts";
import { timeline } from "./timeline.ts";
import { flamegraph, functions } from "./trees.ts";

interface Served {
  id: string;
  name: string;
  make: () => MockRecording;
  made?: MockRecording;
  running?: true;
  failed?: string;
}

const RECORDINGS: Served[] = [
  { id: "r1", name: "memory-shop.dat", make: () => typicalRecording(10) },
  { id: "r2", name: "memory-five.dat", make: tinyRecording },
  { id: "r3", name: "memory-steady.dat", make: () => typicalRecording(120, 11, "steady 4712"), running: true },
  {
    id: "r4",
    name: "notes.txt",
    make: emptyRecording,
    failed: "notes.txt is not a recording: its first bytes are not a tracehound header.",
  },
  { id: "r5", name: "memory-empty.dat", make: emptyRecording },
];

/** Nanoseconds of the running recording for a millisecond of the clock: it lasts for ten minutes. */
const SLOWLY = 0.2e6;

const started = Date.now();

function viewOf(served: Served): View {
  served.made ??= served.make();
  const { durationNs } = served.made;
  const watermark = served.running ? Math.min(durationNs, 2e9 + (Date.now() - started) * SLOWLY) : durationNs;
  return {
    recording: served.made,
    watermark: Math.floor(watermark),
    running: served.running === true && watermark < durationNs,
  };
}

function summary(served: Served): RecordingSummary {
  const view = served.failed ? undefined : viewOf(served);
  return {
    id: served.id,
    name: served.name,
    title: view?.recording.title ?? "",
    started_at: view ? "2026-07-30T08:15:00.000000000Z" : null,
    duration_ns: view?.watermark ?? null,
    state: served.failed ? "failed" : view?.running ? "running" : "ready",
    progress: { done_bytes: 1000, total_bytes: 1000, events: view?.recording.blocks.length ?? 0, events_per_second: 0 },
    error: served.failed ?? null,
    file: "as_read",
  };
}

type Next = () => void;

/** Connect middleware: answers what is under `/api/`, leaves the rest. */
export function answer(request: IncomingMessage, response: ServerResponse, next: Next): void {
  const url = new URL(request.url ?? "/", "http://localhost");
  if (!url.pathname.startsWith("/api/")) {
    next();
    return;
  }
  const query = new Map(url.searchParams);
  const parts = url.pathname.split("/").slice(3).map(decodeURIComponent);
  try {
    route(request, response, parts, query);
  } catch (error) {
    if (error instanceof BadParameter) problem(response, 400, error.message, error.parameter);
    else problem(response, 500, String(error));
  }
}

function route(request: IncomingMessage, response: ServerResponse, parts: string[], query: Query): void {
  const served = RECORDINGS.find((known) => known.id === parts[1]);
  if (parts[0] !== "recordings") {
    problem(response, 404, "There is no such document.");
  } else if (parts[1] === undefined) {
    json(response, { schema: "heaptrace.recordings/1", recordings: RECORDINGS.map(summary) });
  } else if (!served) {
    problem(response, 404, `There is no recording “${parts[1]}”.`);
  } else if (served.failed) {
    problem(response, 409, served.failed);
  } else if (parts[2] === "live") {
    live(request, response, served);
  } else {
    const document = documentOf(served, parts.slice(2), query);
    if (document === undefined) problem(response, 404, "There is no such document.");
    else json(response, document);
  }
}

function documentOf(served: Served, [name, part]: string[], query: Query): unknown {
  const view = viewOf(served);
  switch (name) {
    case undefined:
      return info(view);
    case "timeline":
      return timeline(view, query);
    case "flamegraph":
      return flamegraph(view, query);
    case "functions":
      return functions(view, query);
    case "leaks":
      return leaks(view, query);
    case "sites":
      return part === undefined ? sites(view, query) : site(view, Number(part.slice(1)), query);
    case "allocations":
      return allocations(view, query);
    case "sizes":
      return sizes(view, query);
    case "lifetimes":
      return lifetimes(view, query);
    case "threads":
      return threads(view, query);
    case "modules":
      return modules(view);
    case "source":
      return source(view, query);
    case "replay": {
      const command = `heaptrace replay ${served.name}`;
      const none: KeptReplay = {
        schema: "heaptrace.kept_replay/1",
        replay: null,
        checked: false,
        smaller: null,
        command,
      };
      return none;
    }
    case "diff": {
      const other = RECORDINGS.find((known) => known.id === query.get("other"));
      return diff(view, query, other && viewOf(other));
    }
    default:
      return undefined;
  }
}

function json(response: ServerResponse, body: unknown, status = 200, type = "application/json"): void {
  response.writeHead(status, { "content-type": type, "cache-control": "no-cache" });
  response.end(JSON.stringify(body));
}

function problem(response: ServerResponse, status: number, detail: string, parameter: string | null = null): void {
  const body: Problem = {
    type: "about:blank",
    title: status === 404 ? "Not found" : status === 400 ? "Bad request" : "Conflict",
    status,
    detail,
    parameter,
  };
  json(response, body, status, "application/problem+json");
}

function live(request: IncomingMessage, response: ServerResponse, served: Served): void {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  let revision = 0;
  const send = () => {
    const view = viewOf(served);
    revision += 1;
    const body: Live = {
      schema: "heaptrace.live/1",
      state: view.running ? "running" : "ready",
      progress: summary(served).progress,
      watermark_ns: view.watermark,
      live_bytes: 0,
      revision: view.running ? revision : 0,
    };
    response.write(`data: ${JSON.stringify(body)}\n\n`);
  };
  send();
  const timer = setInterval(send, 250);
  request.on("close", () => clearInterval(timer));
}
