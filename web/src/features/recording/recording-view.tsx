// The recording itself: what may be missing, what the recorder cost, which modules have names.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { documentQuery } from "../../api/queries.ts";
import type { Info, Module } from "../../api/types.ts";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatInstant,
  formatPercent,
  formatShortCount,
  plural,
} from "../../lib/format.ts";
import { fileName } from "../../lib/names.ts";
import { moduleNamed } from "../../lib/pattern.ts";
import { sortedRows } from "../../lib/sorting.ts";
import { waitOf } from "../../lib/waiting.ts";
import { Button } from "../../ui/controls.tsx";
import { type Column, DataTable, toTsv } from "../../ui/data-table.tsx";
import { useNotes } from "../../ui/notes.ts";
import { useCopy } from "../../ui/notice.tsx";
import { usePage } from "../../ui/page.ts";
import { MatchCount, useSearch } from "../../ui/search.tsx";
import { useSorting } from "../../ui/sorting.ts";
import { Answer } from "../../ui/states.tsx";
import { Term } from "../../ui/term.tsx";
import { auditOf } from "./audit.ts";
import { Generations } from "./generations.tsx";
import "./recording.css";

export function RecordingView() {
  const { info, subject, recording } = usePage();
  const modules = useQuery(documentQuery(subject, "modules"));
  if (!info) return null;
  return (
    <div className="recording-view">
      <div className="recording-columns">
        <section aria-labelledby="trust">
          <h2 id="trust">Can it be trusted?</h2>
          <ul className="audit">
            {auditOf(info).map((entry) => (
              <li key={entry.id} data-tone={entry.tone}>
                <Term definition={entry.definition}>{entry.label}</Term> <b>{entry.value}</b>
              </li>
            ))}
          </ul>
        </section>
        <section aria-labelledby="cost">
          <h2 id="cost">What the recorder cost</h2>
          <Cost info={info} file={recording.name} />
        </section>
        <section aria-labelledby="remarks">
          <h2 id="remarks">Marks, captures, remarks</h2>
          <Remarks info={info} />
        </section>
      </div>
      <Generations info={info} />
      <h2>Modules</h2>
      <Answer query={modules} what="the modules">
        {(data) => <Modules modules={data.modules} />}
      </Answer>
    </div>
  );
}

function Cost({ info, file }: { info: Info; file: string }) {
  const { recorder, events, process } = info;
  const all = events.alloc + events.free + events.realloc + events.map + events.unmap + events.remap + events.brk;
  return (
    <dl className="facts-list">
      <div>
        <dt>File</dt>
        <dd>
          <span className="mono">{file}</span>, {formatBytes(recorder.file_bytes)}
          {all > 0 && `, ${formatShortCount(recorder.file_bytes / all)} bytes an event`}
        </dd>
      </div>
      <div>
        <dt>Recorder</dt>
        <dd>
          version {recorder.version}, clock <span className="mono">{recorder.clock}</span>
        </dd>
      </div>
      <div>
        <dt>Waiting</dt>
        <dd>
          {formatDuration(recorder.wait_ns)} the program&apos;s threads waited for the writer (
          {waitOf(recorder.wait_ns / Math.max(1, process.duration_ns))})
        </dd>
      </div>
      <div>
        <dt>Writer&apos;s CPU</dt>
        <dd>{formatDuration(recorder.background_cpu_ns)} on threads of its own</dd>
      </div>
      <div>
        <dt>Memory</dt>
        <dd>
          at most {formatBytes(recorder.memory_bytes)}, {formatBytes(recorder.chunk_memory_bytes)} of it chunks
        </dd>
      </div>
      <div>
        <dt>Call tree</dt>
        <dd>{plural(recorder.nodes, "node")}</dd>
      </div>
      <div>
        <dt>Options</dt>
        <dd className="mono">{recorder.options.length > 0 ? recorder.options.join(" ") : "all at their defaults"}</dd>
      </div>
    </dl>
  );
}

function Remarks({ info }: { info: Info }) {
  const { go, recording } = usePage();
  const notes = useNotes(recording.name);
  const find = useSearch();
  const marks = info.marks.filter(({ label }) => find.hit(label));
  const remarks = info.remarks.filter(({ topic, text }) => find.hit(topic, text));
  const own = notes.list.filter(({ text }) => find.hit(text));
  return (
    <ul className="remarks">
      {info.captures.map((capture) => (
        <li key={`capture ${capture.from_ns}`}>
          Recorded from {formatInstant(capture.from_ns)} to {formatInstant(capture.to_ns)}{" "}
          <Button
            quiet
            onClick={() => go({ window: { from: capture.from_ns, to: Math.max(capture.from_ns + 1, capture.to_ns) } })}
          >
            Use as window
          </Button>
        </li>
      ))}
      {marks.map((mark) => (
        <li key={`mark ${mark.t_ns} ${mark.label}`}>
          Mark <b>{mark.label}</b> at {formatInstant(mark.t_ns)}{" "}
          <Button
            quiet
            onClick={() => go({ at: mark.t_ns, window: undefined, metric: undefined }, { view: "flamegraph" })}
          >
            What was live
          </Button>
        </li>
      ))}
      {own.map((note) => (
        <li key={`note ${note.t} ${note.text}`}>
          Your mark <b>{note.text}</b> at {formatInstant(note.t)}{" "}
          <Button quiet aria-label={`Remove the mark ${note.text}`} onClick={() => notes.remove(note)}>
            ✕
          </Button>
        </li>
      ))}
      {remarks.map((remark) => (
        <li key={`remark ${remark.t_ns} ${remark.topic} ${remark.text}`}>
          <span className="muted">{formatInstant(remark.t_ns)}</span> {remark.text}
        </li>
      ))}
      {info.captures.length + marks.length + remarks.length + own.length === 0 && <li className="muted">None.</li>}
    </ul>
  );
}

const SYMBOL_TEXT: Record<Module["symbols"], { label: string; tone: string }> = {
  debug: { label: "lines and inlined functions", tone: "good" },
  table: { label: "names only", tone: "plain" },
  none: { label: "none", tone: "warn" },
  mismatch: { label: "file differs from the recorded one", tone: "bad" },
  missing: { label: "file is not here", tone: "bad" },
};

function Modules({ modules }: { modules: readonly Module[] }) {
  const { search, go } = usePage();
  const copy = useCopy();
  const columns = useMemo(() => {
    // Most programs unload nothing: the place is for the build ids.
    const anyUnloaded = modules.some((module) => module.unloaded_ns != null);
    return COLUMNS.filter((column) => column.id !== "unloaded" || anyUnloaded);
  }, [modules]);
  const sorting = useSorting("addresses");
  const find = useSearch();
  const shown = useMemo(
    () => modules.filter((module) => find.hit(module.path, module.build_id, module.note)),
    [modules, find],
  );
  return (
    <div className="table-view modules">
      <MatchCount search={find} shown={shown.length} of={modules.length} what="modules" />
      <DataTable
        label="Modules"
        fit
        rows={shown}
        columns={columns}
        rowKey={(module) => String(module.id)}
        sorting={sorting}
        menu={(module) => [
          {
            label: "Only stacks through it",
            run: () =>
              go(
                {
                  filters: { ...search.filters, module: moduleNamed(fileName(module.path)) },
                },
                { view: "functions" },
              ),
          },
          { label: "Copy path", run: () => copy(module.path, "the path") },
          ...(module.build_id
            ? [{ label: "Copy build id", run: () => copy(module.build_id ?? "", "the build id") }]
            : []),
          {
            label: "Copy table",
            run: () => copy(toTsv(columns, sortedRows(shown, columns, sorting.keys)), plural(shown.length, "row")),
          },
        ]}
      />
    </div>
  );
}

/** What stands for the functions of an interpreted program has addresses that no process has. */
const isInMemory = (module: Module) => module.size < 2 ** 46;

const COLUMNS: Column<Module>[] = [
  {
    id: "name",
    header: "Module",
    definition: "File name",
    width: "minmax(140px, 1fr)",
    value: (module) => fileName(module.path),
    cell: (module) => <span className="mono">{fileName(module.path)}</span>,
  },
  {
    id: "symbols",
    header: "Symbols",
    definition: "Where names come from",
    width: "minmax(190px, 1.8fr)",
    value: (module) => module.symbols,
    cell: (module) => (
      <span className={SYMBOL_TEXT[module.symbols].tone} title={module.note ?? undefined}>
        {SYMBOL_TEXT[module.symbols].label}
        {module.note ? `: ${module.note}` : ""}
      </span>
    ),
  },
  {
    id: "addresses",
    header: "Addresses",
    definition: "Call-tree addresses in it",
    width: "88px",
    numeric: true,
    value: (module) => module.addresses,
    cell: (module) => formatCount(module.addresses),
  },
  {
    id: "named",
    header: "Named",
    definition: "Part of them with a name",
    width: "72px",
    numeric: true,
    value: (module) => (module.addresses > 0 ? module.named / module.addresses : 1),
    cell: (module) => (module.addresses > 0 ? formatPercent(module.named / module.addresses) : "–"),
  },
  {
    id: "loaded",
    header: "Loaded",
    definition: "When it was loaded",
    width: "84px",
    numeric: true,
    value: (module) => module.loaded_ns,
    cell: (module) =>
      module.loaded_ns === 0 ? <span className="muted">at start</span> : formatDuration(module.loaded_ns),
  },
  {
    id: "unloaded",
    header: "Unloaded",
    definition: "When it was unloaded, if it was",
    width: "84px",
    numeric: true,
    value: (module) => module.unloaded_ns ?? Number.MAX_SAFE_INTEGER,
    cell: (module) => (module.unloaded_ns == null ? "" : formatDuration(module.unloaded_ns)),
  },
  {
    id: "start",
    header: "First address",
    definition: "Where it was mapped",
    width: "130px",
    value: (module) => module.start,
    cell: (module) => <span className="mono muted">{isInMemory(module) ? module.start : "–"}</span>,
  },
  {
    id: "size",
    header: "Size",
    definition: "From its first to its last address",
    width: "84px",
    numeric: true,
    value: (module) => (isInMemory(module) ? module.size : 0),
    cell: (module) => (isInMemory(module) ? formatBytes(module.size) : "–"),
  },
  {
    id: "build_id",
    header: "Build id",
    definition: "What a debug file must match",
    width: "minmax(72px, 0.5fr)",
    value: (module) => module.build_id ?? "",
    cell: (module) => (
      <span className="mono muted" title={module.build_id ?? undefined}>
        {module.build_id ?? "none"}
      </span>
    ),
  },
  {
    id: "path",
    header: "Path",
    definition: "At the time of recording",
    width: "minmax(140px, 1.5fr)",
    value: (module) => module.path,
    cell: (module) => <span className="muted">{module.path}</span>,
  },
];
