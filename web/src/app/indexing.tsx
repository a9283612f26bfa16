// A recording that is being indexed, one whose indexing was cancelled or failed, and one whose file is another one by now.
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { sendCommand } from "../api/client.ts";
import { recordingsQuery } from "../api/queries.ts";
import type { RecordingSummary } from "../api/types.ts";
import { formatBytes, formatCount, formatPercent } from "../lib/format.ts";
import { Button } from "../ui/controls.tsx";
import { useNotice } from "../ui/notice.tsx";
import { Empty } from "../ui/states.tsx";

/** Sends a command about a recording, and looks at the list again. */
function useCommand(recording: RecordingSummary, command: "cancel_indexing" | "start_indexing") {
  const client = useQueryClient();
  const notice = useNotice();
  const [sent, setSent] = useState(false);
  const send = async () => {
    setSent(true);
    try {
      await sendCommand(`recordings/${encodeURIComponent(recording.id)}/${command}`);
    } catch (error) {
      setSent(false);
      notice(error instanceof Error ? error.message : String(error));
    }
    await client.invalidateQueries({ queryKey: recordingsQuery().queryKey });
  };
  return { sent, send: () => void send() };
}

interface IndexingProps {
  recording: RecordingSummary;
  progress: RecordingSummary["progress"];
}

export function Indexing({ recording, progress }: IndexingProps) {
  const { sent, send } = useCommand(recording, "cancel_indexing");
  const part = progress.done_bytes / Math.max(1, progress.total_bytes);
  return (
    <main>
      <div className="state">
        <div role="status">
          <h2>Indexing the recording (first time only)</h2>
          <progress
            value={progress.done_bytes}
            max={Math.max(1, progress.total_bytes)}
            aria-label="Reading the recording"
          />
          <p className="muted">
            {formatPercent(part)} of {formatBytes(progress.total_bytes)}, {formatCount(progress.events)} events
            {progress.events_per_second > 0 && `, ${formatCount(Math.round(progress.events_per_second))} a second`}. The
            next time it opens at once.
          </p>
        </div>
        <Button
          onClick={send}
          disabled={sent}
          title="The server stops reading; what it has written of the index is removed"
        >
          {sent ? "Cancelling…" : "Cancel indexing"}
        </Button>
      </div>
    </main>
  );
}

export function IndexingCancelled({ recording }: { recording: RecordingSummary }) {
  const { sent, send } = useCommand(recording, "start_indexing");
  return (
    <main>
      <Empty title="Indexing was cancelled">
        <p>
          Nothing of the index was kept, and the recording is as it was. Without an index there is nothing to show.
          {recording.error?.includes(";") && ` ${recording.error}.`}
        </p>
        <Button onClick={send} disabled={sent}>
          Index it
        </Button>
      </Empty>
    </main>
  );
}

export function IndexingFailed({ recording }: { recording: RecordingSummary }) {
  const { sent, send } = useCommand(recording, "start_indexing");
  return (
    <main>
      <Empty title="This recording cannot be opened">
        <p>{recording.error ?? "The server returned no reason."}</p>
        <Button onClick={send} disabled={sent}>
          Try again
        </Button>
      </Empty>
    </main>
  );
}

/** Above a recording whose file is not the one that is shown: a program that runs again may have replaced it. */
export function FileBanner({ recording }: { recording: RecordingSummary }) {
  const client = useQueryClient();
  const { sent, send } = useCommand(recording, "start_indexing");
  // Somebody who comes back from a terminal may have run the program again.
  useEffect(() => {
    const look = () => void client.refetchQueries({ queryKey: recordingsQuery().queryKey });
    window.addEventListener("focus", look);
    return () => window.removeEventListener("focus", look);
  }, [client]);
  if (recording.file === "as_read") return null;
  return (
    <aside className="symbol-banner" aria-label="The file of this recording">
      <span>
        <b>{recording.name}</b>{" "}
        {recording.file === "removed"
          ? "was removed since it was opened. What is shown is what was in it."
          : "is another file than the one that was opened. What is shown is what was in the first."}
      </span>
      {recording.file === "changed" && recording.state === "ready" && (
        <Button onClick={send} disabled={sent}>
          Open the new file
        </Button>
      )}
    </aside>
  );
}
