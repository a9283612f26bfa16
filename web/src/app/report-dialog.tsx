// A report of what is seen: what will be in it, and what to think of before it is passed on.
import { useEffect, useRef, useState } from "react";
import { apiUrl } from "../api/client.ts";
import { formatInstant } from "../lib/format.ts";
import { effectiveWindow } from "../lib/search-params.ts";
import { Button, Select } from "../ui/controls.tsx";
import { usePage, useRequest } from "../ui/page.ts";
import { download } from "./exports.ts";

const SIZES = ["2MiB", "8MiB", "16MiB", "64MiB"] as const;

export function ReportDialog({ close }: { close: () => void }) {
  const { recording, search, endNs } = usePage();
  const request = useRequest();
  const dialog = useRef<HTMLDialogElement>(null);
  const [strip, setStrip] = useState(false);
  const [size, setSize] = useState<(typeof SIZES)[number]>("16MiB");
  useEffect(() => dialog.current?.showModal(), []);
  const window = effectiveWindow(search) ?? { from: 0, to: endNs };
  const save = () => {
    download(
      apiUrl(`recordings/${encodeURIComponent(recording.id)}/report`, {
        ...request.window,
        ...request.filters,
        strip_paths: strip || undefined,
        max_file_size: size,
      }),
    );
    dialog.current?.close();
  };
  return (
    <dialog ref={dialog} className="sheet report-dialog" aria-labelledby="report-title" onClose={close}>
      <header>
        <h2 id="report-title">A report in one HTML file</h2>
        <Button onClick={() => dialog.current?.close()}>Cancel</Button>
      </header>
      <p>
        It shows {formatInstant(window.from)} to {formatInstant(window.to)} under the filters that are set, in any
        browser, without a server and without a network: overview, flame graphs, call tree, functions, sites, leaks,
        lifetimes, threads and what was recorded.
      </p>
      <p className="warn">
        It holds the command line, the names of all functions, and paths of this machine: think of that before you pass
        it on.
      </p>
      <p>
        <label>
          <input type="checkbox" checked={strip} onChange={(event) => setStrip(event.target.checked)} /> Keep only the
          last part of every path, and of the command line only the program
        </label>
      </p>
      <p>
        <Select
          label="At most"
          value={size}
          choices={SIZES.map((value) => ({ value, label: value.replace("MiB", " MiB") }))}
          onChange={setSize}
        />{" "}
        <span className="muted">detail is left out until it fits</span>
      </p>
      <p>
        <Button className="primary" onClick={save}>
          Save the report
        </Button>
      </p>
    </dialog>
  );
}
