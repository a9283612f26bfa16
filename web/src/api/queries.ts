// One request, one place: the options of every query. Keys are [recording, revision, path, parameters].
import { type QueryKey, queryOptions } from "@tanstack/react-query";
import { getJson, LostServerError, type Parameters, ProblemError } from "./client.ts";
import type {
  Allocations,
  Breakdown,
  Churn,
  Contexts,
  Diff,
  DiffFlamegraph,
  Flamegraph,
  Functions,
  HeapMap,
  Info,
  KeptReplay,
  Leaks,
  Lifetimes,
  Memory,
  MemoryHistory,
  Modules,
  Pins,
  Recordings,
  Site,
  Sites,
  Sizes,
  Source,
  SqlAnswer,
  SqlSchema,
  Threads,
  Timeline,
} from "./types.ts";

/** Which recording is asked, and in which state of its data. */
export interface Subject {
  recording: string;
  revision: number;
}

interface Documents {
  "": Info;
  timeline: Timeline;
  flamegraph: Flamegraph;
  functions: Functions;
  sites: Sites;
  allocations: Allocations;
  leaks: Leaks;
  lifetimes: Lifetimes;
  memory: Memory;
  memory_history: MemoryHistory;
  pins: Pins;
  replay: KeptReplay;
  map: HeapMap;
  churn: Churn;
  contexts: Contexts;
  breakdown: Breakdown;
  sizes: Sizes;
  threads: Threads;
  modules: Modules;
  source: Source;
  diff: Diff;
  "diff/flamegraph": DiffFlamegraph;
}

/** The list of what the server serves. */
export function recordingsQuery() {
  return queryOptions({
    queryKey: ["recordings"],
    queryFn: ({ signal }) => getJson<Recordings>("recordings", {}, signal),
    refetchInterval: (query) =>
      query.state.error instanceof LostServerError ||
      query.state.data?.recordings.some((r) => r.state === "indexing" || r.state === "running")
        ? 2000
        : false,
  });
}

/** What the query hooks want to know of a request for a `T`. */
interface Options<T> {
  queryKey: QueryKey;
  queryFn: (context: { signal: AbortSignal }) => Promise<T>;
  /** What was shown before stays until the new answer is there. */
  placeholderData: (previous: T | undefined, query: { queryKey: QueryKey } | undefined) => T | undefined;
}

/** A document about a recording. */
export function documentQuery<K extends keyof Documents>(
  subject: Subject,
  document: K,
  parameters: Parameters = {},
): Options<Documents[K]> {
  return {
    queryKey: [subject.recording, document, parameters, subject.revision],
    queryFn: ({ signal }) => getJson<Documents[K]>(path(subject.recording, document), parameters, signal),
    placeholderData: (previous, query) => (query?.queryKey[0] === subject.recording ? previous : undefined),
  };
}

/** A document that may change while the recording does not: asked again whenever it is shown again. */
export function freshQuery<K extends keyof Documents>(
  subject: Subject,
  document: K,
): Options<Documents[K]> & { staleTime: number } {
  return { ...documentQuery(subject, document), staleTime: 0 };
}

/** Everything about one site. */
export function siteQuery(subject: Subject, site: string, parameters: Parameters): Options<Site> {
  return {
    queryKey: [subject.recording, "site", site, parameters, subject.revision],
    queryFn: ({ signal }) =>
      getJson<Site>(path(subject.recording, `sites/${encodeURIComponent(site)}`), parameters, signal),
    placeholderData: (previous, query) =>
      query?.queryKey[0] === subject.recording && query.queryKey[2] === site ? previous : undefined,
  };
}

/** An answer in SQL, and how long it took. */
export interface TimedAnswer {
  answer: SqlAnswer;
  ms: number;
}

/** Rows of an answer in SQL that the page takes. */
export const SQL_ROWS = 10_000;

/**
 * A question in SQL, about recordings that are numbered from 1 in this order.
 * A running recording is asked as it is then, not again whenever it has grown.
 */
export function sqlQuery(recordings: readonly string[], question: string) {
  return queryOptions({
    queryKey: ["sql", recordings, question],
    queryFn: async ({ signal }): Promise<TimedAnswer> => {
      const started = performance.now();
      const parameters = { q: question, recordings: recordings.join(","), limit: SQL_ROWS };
      const answer = await getJson<SqlAnswer>("sql", parameters, signal);
      return { answer, ms: performance.now() - started };
    },
  });
}

/** What can be asked in SQL. */
export function sqlSchemaQuery() {
  return queryOptions({
    queryKey: ["sql schema"],
    queryFn: ({ signal }) => getJson<SqlSchema>("sql/schema", {}, signal),
  });
}

function path(recording: string, document: string): string {
  const base = `recordings/${encodeURIComponent(recording)}`;
  return document === "" ? base : `${base}/${document}`;
}

/** Whether to try again: lost answers are, refusals are not. */
export function shouldRetry(failures: number, error: Error): boolean {
  return !(error instanceof ProblemError) && !(error instanceof LostServerError) && failures < 2;
}
