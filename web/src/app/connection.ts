// The query client, and whether the server is there.
import { notifyManager, QueryCache, QueryClient } from "@tanstack/react-query";
import { useEffect, useSyncExternalStore } from "react";
import { LostServerError } from "../api/client.ts";
import { recordingsQuery, shouldRetry } from "../api/queries.ts";

// An answer is drawn when it is there: by default it waits for a timer.
notifyManager.setScheduler(queueMicrotask);

let lost = false;
const listeners = new Set<() => void>();

function setLost(now: boolean): void {
  if (lost === now) return;
  lost = now;
  for (const listener of listeners) listener();
}

export const queryClient: QueryClient = new QueryClient({
  queryCache: new QueryCache({
    onError: (error) => {
      if (error instanceof LostServerError) setLost(true);
    },
    onSuccess: () => {
      if (!lost) return;
      setLost(false);
      // What failed or became old while the server was away is requested again.
      void queryClient.invalidateQueries();
    },
  }),
  defaultOptions: {
    queries: {
      retry: shouldRetry,
      staleTime: Number.POSITIVE_INFINITY,
      gcTime: 60_000,
      refetchOnWindowFocus: false,
      // The server is on this machine, mostly: it answers without a network, too.
      networkMode: "always",
    },
  },
});

/** True while the server does not answer; keeps asking until it does. */
export function useServerLost(): boolean {
  const now = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => lost,
  );
  useEffect(() => {
    if (!now) return;
    const timer = setInterval(() => void queryClient.refetchQueries({ queryKey: recordingsQuery().queryKey }), 2000);
    return () => clearInterval(timer);
  }, [now]);
  return now;
}

/** Checks whether the server is gone, after the event stream broke. */
export function suspectLoss(): void {
  void queryClient.refetchQueries({ queryKey: recordingsQuery().queryKey });
}
