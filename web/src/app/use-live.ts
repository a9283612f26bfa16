// Follows a recording that is being indexed or that still grows.
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { followRecording } from "../api/live.ts";
import { recordingsQuery } from "../api/queries.ts";
import type { Live, RecordingSummary } from "../api/types.ts";
import { suspectLoss } from "./connection.ts";

/** Views are drawn anew at most this often. */
const CALM_MS = 1000;

/** The newest state, at most once a second; `undefined` for a recording that is finished and was all along. */
export function useLive(recording: RecordingSummary | undefined): Live | undefined {
  const client = useQueryClient();
  const [live, setLive] = useState<{ id: string; live: Live }>();
  const id = recording?.id;
  const wanted = recording?.state === "indexing" || recording?.state === "running";
  const state = useRef<Live["state"]>(undefined);

  useEffect(() => {
    if (id === undefined || !wanted) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let newest: Live | undefined;
    let last = 0;
    const show = () => {
      timer = undefined;
      if (!newest) return;
      last = Date.now();
      setLive({ id, live: newest });
      if (state.current !== newest.state) {
        state.current = newest.state;
        void client.invalidateQueries({ queryKey: recordingsQuery().queryKey });
      }
    };
    const stop = followRecording(
      id,
      (now) => {
        newest = now;
        const wait = now.state === newest.state && now.state !== "ready" ? CALM_MS - (Date.now() - last) : 0;
        timer ??= setTimeout(show, Math.max(0, wait));
      },
      suspectLoss,
    );
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [id, wanted, client]);

  return live?.id === id ? live?.live : undefined;
}
