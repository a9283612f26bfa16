// The windows that were committed, outermost first, and the one under the brush.
import { formatDuration } from "../../lib/format.ts";
import { length, type Window } from "../../lib/time.ts";
import { Button } from "../../ui/controls.tsx";
import { usePage } from "../../ui/page.ts";
import { windowText } from "./layout.ts";

export function Crumbs({ window, commit }: { window: Window | undefined; commit: () => void }) {
  const { search, endNs, go } = usePage();
  const zoom = search.zoom ?? [];
  const clear = { window: undefined, shown: undefined, at: undefined };
  return (
    <nav className="crumbs" aria-label="Windows">
      <Button
        quiet
        aria-current={zoom.length === 0 && !window ? "true" : undefined}
        title="The whole recording (double click on the timeline)"
        onClick={() => go({ ...clear, zoom: undefined })}
      >
        All <span className="muted">{formatDuration(endNs)}</span>
      </Button>
      {zoom.map((crumb, i) => (
        <span key={`${crumb.from} ${crumb.to}`} className="crumb">
          <span aria-hidden="true" className="muted">
            ›
          </span>
          <Button
            quiet
            aria-current={i === zoom.length - 1 && !window ? "true" : undefined}
            onClick={() => go({ ...clear, zoom: zoom.slice(0, i + 1) })}
          >
            {windowText(crumb)}
          </Button>
        </span>
      ))}
      {window && (
        <span className="crumb" data-preview="true">
          <span aria-hidden="true" className="muted">
            ›
          </span>
          <span className="crumb-preview">
            {windowText(window)} <span className="muted">{formatDuration(length(window))}</span>
          </span>
          <Button title="Keep this window and show it in full (Enter on the timeline)" onClick={commit}>
            Zoom in
          </Button>
          <Button
            quiet
            title="Drop this window (Escape on the timeline)"
            onClick={() => go({ window: undefined })}
            aria-label="Drop window"
          >
            ✕
          </Button>
        </span>
      )}
    </nav>
  );
}
