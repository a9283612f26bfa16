// What was known before the server was lost.
import { useRef } from "react";
import { LostServerError } from "../api/client.ts";

interface KeptAnswer {
  data: unknown;
  error: Error | null;
}

/** A query that keeps its last answer where a lost server cannot answer the next question. */
export function useKept<Q extends KeptAnswer>(query: Q): Q {
  const last = useRef(query.data);
  if (query.data !== undefined) last.current = query.data;
  return query.data === undefined && query.error instanceof LostServerError ? { ...query, data: last.current } : query;
}
