// Other allocators: what they would have taken for the recorded calls, or the command that finds it out.
import { useQuery } from "@tanstack/react-query";
import { freshQuery } from "../../api/queries.ts";
import type { KeptReplay, Replay, ReplayRow } from "../../api/types.ts";
import { formatBytes, formatDuration, formatExact, formatPercent } from "../../lib/format.ts";
import {
  boundsOf,
  formatBounds,
  hasFigures,
  inOrderOfPeaks,
  replayError,
  replayedName,
  replayVerdict,
  settingsOf,
  smallerRow,
} from "../../lib/replay.ts";
import { Button } from "../../ui/controls.tsx";
import { useCopy } from "../../ui/notice.tsx";
import { usePage } from "../../ui/page.ts";
import { Term } from "../../ui/term.tsx";

/** Milliseconds after which it is asked again whether the command has run. */
const AGAIN = 5000;
/** What a row's processor time is of. */
const PROCESSOR = "Processor time of the calls, that of the replay itself included.";
/** What a peak is. */
const PEAK =
  "Resident memory of no file at most, without the recorder: lowest and highest over the orders of events of different threads that were tried.";

export function ReplayPanel() {
  const { subject, report } = usePage();
  const { data, error } = useQuery({
    ...freshQuery(subject, "replay"),
    // The command runs in a terminal, beside the page.
    refetchInterval: ({ state }) => (!report && state.data?.replay === null ? AGAIN : false),
  });
  return (
    <section aria-labelledby="other-allocators" data-panel="replay">
      <h2 id="other-allocators">
        Other allocators <span className="muted">with the recorded calls</span>
      </h2>
      {!data ? (
        <p className="muted">{error ? `Not known: ${error.message}` : "Looking for replays…"}</p>
      ) : data.replay ? (
        <Replayed kept={data} replay={data.replay} />
      ) : (
        <NotReplayed command={data.command} />
      )}
    </section>
  );
}

function NotReplayed({ command }: { command: string }) {
  const { running } = usePage();
  return (
    <p className="replay-command">
      <span className="muted">
        Nothing has been replayed yet. {running ? "Once the program has ended, this" : "This"} plays the recorded calls
        back against other allocators:
      </span>
      <Command command={command} what="the command" />
    </p>
  );
}

function Replayed({ kept, replay }: { kept: KeptReplay; replay: Replay }) {
  const { recorded, self_check: check } = replay;
  const rows = inOrderOfPeaks(replay.rows);
  const most = Math.max(1, recorded.peak_bytes, ...rows.map((row) => boundsOf(row.peak_bytes).high));
  const off = replayError(kept);
  const least = smallerRow(kept);
  return (
    <>
      <p>
        <b>{replayVerdict(kept)}.</b>{" "}
        <span className="muted">
          {check
            ? `Its own allocator, replayed, takes ${formatBytes(check.then_bytes || check.peak_bytes)} where most was recorded (${check.error < 0 ? "−" : "+"}${formatPercent(Math.abs(check.error))}): all rows may have an error of this size.`
            : "There is no self-check: the recording's own allocator is not at hand."}
          {recorded.other_bytes > 0 &&
            ` Of that, ${formatBytes(recorded.other_bytes)} were not the allocator's: stacks, data of modules, the program's own mappings. Rows have as much of it as was recorded at each time.`}
        </span>
      </p>
      <table className="small-table replay-rows">
        <thead>
          <tr>
            <th>Allocator</th>
            <th>
              <Term definition={PEAK}>At its peak</Term> {off && <span data-testid="replay-error">± {off}</span>}
            </th>
            <th className="numeric">At the end</th>
            <th className="numeric">
              <Term definition={PROCESSOR}>Processor</Term>
            </th>
          </tr>
        </thead>
        <tbody data-replay="recorded">
          <tr>
            <td>
              <b>{recorded.allocator}</b> <span className="muted">as recorded</span>
            </td>
            <td className="replay-peak" title={formatExact(recorded.peak_bytes, "bytes")}>
              {formatBytes(recorded.peak_bytes)}
              <PeakBar peak={[recorded.peak_bytes]} recorded={recorded.peak_bytes} most={most} />
            </td>
            <td />
            <td />
          </tr>
        </tbody>
        {rows.map((row) => (
          <RowOf key={replayedName(row)} row={row} recorded={recorded.peak_bytes} most={most} isLeast={row === least} />
        ))}
      </table>
      <p className="replay-command">
        <span className="muted">More of them, also with settings:</span>
        <Command command={kept.command} what="the command" />
      </p>
    </>
  );
}

interface RowProps {
  row: ReplayRow;
  /** Peak of the recording, in bytes. */
  recorded: number;
  /** The largest of all peaks, in bytes. */
  most: number;
  isLeast: boolean;
}

function RowOf({ row, recorded, most, isLeast }: RowProps) {
  const name = replayedName(row);
  return (
    <tbody data-replay={name} data-least={isLeast || undefined}>
      <tr>
        <td>
          <span className="wrap">{row.allocator}</span> <span className="muted mono">{settingsOf(row)}</span>
          {isLeast && <span className="good"> least</span>}
          {row.failed && <div className="bad wrap">{row.failed}</div>}
        </td>
        {hasFigures(row) ? (
          <>
            <td className="replay-peak" title={exactBounds(row.peak_bytes)}>
              {formatBounds(row.peak_bytes)}
              <PeakBar peak={row.peak_bytes} recorded={recorded} most={most} />
            </td>
            <td className="numeric" title={exactBounds(row.end_bytes)}>
              {formatBounds(row.end_bytes)}
            </td>
            <td className="numeric">{formatDuration(row.cpu_ns)}</td>
          </>
        ) : (
          <td className="muted" colSpan={3}>
            no figures
          </td>
        )}
      </tr>
      {row.command && (
        <tr className="replay-run">
          <td colSpan={4}>
            <Command command={row.command} what={`the command for ${name}`} />
          </td>
        </tr>
      )}
    </tbody>
  );
}

function exactBounds(pair: readonly number[]): string {
  const { low, high } = boundsOf(pair);
  return low === high ? formatExact(high, "bytes") : `${formatExact(low, "bytes")} to ${formatExact(high, "bytes")}`;
}

/** Lowest and highest peak on the scale of all rows; the line is what was recorded. */
function PeakBar({ peak, recorded, most }: { peak: readonly number[]; recorded: number; most: number }) {
  const { low, high } = boundsOf(peak);
  const part = (bytes: number) => `${(100 * bytes) / most}%`;
  return (
    <span className="replay-bar" aria-hidden="true">
      <i style={{ width: part(low) }} />
      <i data-range="" style={{ width: part(high - low) }} />
      <b style={{ left: part(recorded) }} />
    </span>
  );
}

/** A command, and a button that copies it. */
function Command({ command, what }: { command: string; what: string }) {
  const copy = useCopy();
  return (
    <span className="shell-command">
      <code className="wrap">{command}</code>
      <Button quiet aria-label={`Copy ${what}`} onClick={() => copy(command, what)}>
        Copy
      </Button>
    </span>
  );
}
