// What is measured, what is searched, and the filters as chips.

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { ProblemError } from "../api/client.ts";
import { documentQuery } from "../api/queries.ts";
import { faultOf } from "../lib/filter-values.ts";
import { formatBytes, sentence } from "../lib/format.ts";
import {
  caseOf,
  patternsOf,
  readPattern,
  takesSeveral,
  withOtherCase,
  withoutPattern,
  withPattern,
} from "../lib/pattern.ts";
import { FILTERS, type FilterName, METRICS, type MetricName } from "../lib/search-params.ts";
import { readTransforms } from "../lib/transforms.ts";
import { Button, Segmented, Select } from "../ui/controls.tsx";
import { below, useMenu } from "../ui/menu.tsx";
import { useNotice } from "../ui/notice.tsx";
import { useMetric, usePage } from "../ui/page.ts";
import { LONGEST_NAME, type Preset, presetName, readPresets, writePresets } from "./presets.ts";
import { TransformChips } from "./transform-chips.tsx";
import { VIEW_TEXT } from "./views.tsx";

const METRIC_TEXT: Record<MetricName, { label: string; title: string }> = {
  live: { label: "Live", title: "Blocks live at the chosen instant, else at the end of the window" },
  peak: {
    label: "Peak",
    title: "Blocks live when live bytes were highest inside the window; under a filter, when its own were",
  },
  leaked: { label: "Leaked", title: "Blocks allocated in the window and still live at the end of the recording" },
  allocated: { label: "Allocated", title: "Blocks allocated in the window" },
  freed: { label: "Freed", title: "Blocks freed in the window, by the stack that allocated them" },
  grown: { label: "Grown", title: "Live bytes at the end of the window minus live bytes at its start" },
  temporary: {
    label: "Temporary",
    title: "Allocated in the window and freed at once; the Recording view gives the rule",
  },
};

const FILTER_TEXT: Record<FilterName, { label: string; hint: string }> = {
  focus: { label: "focus", hint: "only stacks with a function or source file that matches" },
  ignore: { label: "ignore", hint: "only stacks without a match" },
  hide: { label: "hide", hint: "matching functions disappear from the stacks" },
  show: { label: "show", hint: "only matching functions stay in the stacks" },
  show_from: { label: "show from", hint: "what is above the outermost match disappears" },
  module: { label: "module", hint: "only stacks with a frame in a module that matches" },
  thread: { label: "thread", hint: "id or name of the allocating thread" },
  context: { label: "context", hint: "only blocks of request contexts with this id, or whose name matches" },
  freed_by: {
    label: "freed by",
    hint: "only blocks whose freeing stack has a matching function or source file",
  },
  frames: { label: "frames", hint: "all: the interpreter's own frames as well" },
  min_size: { label: "at least (size)", hint: "e.g. 64k" },
  max_size: { label: "at most (size)", hint: "e.g. 1MiB" },
  min_lifetime: { label: "lived at least", hint: "e.g. 200ms" },
  max_lifetime: { label: "lived at most", hint: "e.g. 1.5s" },
  transform: { label: "transform", hint: "one a line, in the order in which they are applied" },
  address: { label: "addresses", hint: "only blocks that reach into these, e.g. 0x7f0000..0x7f8000" },
  lifetime: { label: "lifetime class", hint: "leaked, temporary or freed" },
};

/** Metrics that a report holds; the others need a server. */
const IN_REPORTS: ReadonlySet<MetricName> = new Set(["live", "peak", "leaked", "allocated", "temporary"]);

export function FilterBar({ slot }: { slot: (element: HTMLElement | null) => void }) {
  const { view, search, go, report } = usePage();
  const text = VIEW_TEXT[view];
  const metric = useMetric();
  return (
    <section className="filter-bar" aria-label="Measure, search and filter">
      {text.metric && (
        <>
          <Segmented
            label="Metric"
            value={metric}
            choices={METRICS.filter((known) => !report || IN_REPORTS.has(known)).map((value) => ({
              value,
              ...METRIC_TEXT[value],
            }))}
            onChange={(value) => go({ metric: value, at: value === "live" ? search.at : undefined })}
          />
          <Segmented
            label="Unit"
            value={search.unit ?? "bytes"}
            choices={[
              { value: "bytes", label: "Bytes" },
              { value: "count", label: "Blocks" },
            ]}
            onChange={(value) => go({ unit: value === "count" ? "count" : undefined })}
          />
        </>
      )}
      {text.search && !(report && text.search === "asks") && <SearchField />}
      {!text.unfiltered && <Chips />}
      {!report && !text.unfiltered && <AddFilter />}
      {!report && !text.unfiltered && <Presets />}
      <div className="view-slot" ref={slot} />
    </section>
  );
}

function SearchField() {
  const { search, go } = usePage();
  const [text, setText] = useState(search.q ?? "");
  const sent = useRef(search.q ?? "");
  useEffect(() => {
    // The URL changed by other means: back, forward, a link.
    if ((search.q ?? "") !== sent.current) {
      sent.current = search.q ?? "";
      setText(search.q ?? "");
    }
  }, [search.q]);
  useEffect(() => {
    if (text === sent.current) return;
    const timer = setTimeout(() => {
      const first = sent.current === "";
      sent.current = text;
      go({ q: text === "" ? undefined : text }, { replace: !first });
    }, 180);
    return () => clearTimeout(timer);
  }, [text, go]);
  const pattern = readPattern(text);
  return (
    <>
      <label
        className="search"
        data-invalid={pattern.kind === "invalid" || undefined}
        title={pattern.kind === "invalid" ? pattern.why : undefined}
      >
        <span className="visually-hidden">Search functions</span>
        <input
          type="search"
          placeholder="Search (pattern)  /"
          value={text}
          spellCheck={false}
          autoComplete="off"
          aria-invalid={pattern.kind === "invalid"}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => {
            if (event.key !== "Escape") return;
            if (text === "") event.currentTarget.blur();
            setText("");
            event.stopPropagation();
          }}
        />
        {pattern.kind === "invalid" && <span className="bad">not a regular expression</span>}
      </label>
      {text !== "" && (
        <Button
          quiet
          on={!caseOf(text).ignoresCase}
          title="Match case; automatically, case matters only if the text has a capital letter"
          onClick={() => setText(withOtherCase(text))}
        >
          <span aria-hidden="true">Aa</span>
          <span className="visually-hidden">Match case</span>
        </Button>
      )}
    </>
  );
}

function Chips() {
  const { search, go } = usePage();
  const given = FILTERS.filter((name) => search.filters?.[name] !== undefined);
  // Transforms are a list, with a chip for each.
  const active = given.filter((name) => name !== "transform");
  // Of patterns that add up each has a chip, too.
  const chips = active.flatMap((name) => {
    const value = search.filters?.[name] ?? "";
    return (takesSeveral(name) ? patternsOf(value) : [value]).map((part, at) => ({ name, part, at }));
  });
  const without = (name: FilterName, at: number) => {
    const { [name]: value, ...rest } = search.filters ?? {};
    const left = takesSeveral(name) ? withoutPattern(value, at) : undefined;
    const filters = left === undefined ? rest : { ...rest, [name]: left };
    go({ filters: Object.keys(filters).length > 0 ? filters : undefined, root: undefined });
  };
  return (
    <>
      {chips.map(({ name, part, at }) => {
        const fault = faultOf(name, part);
        return (
          <span
            key={`${name} ${part}`}
            className="chip"
            title={fault ?? FILTER_TEXT[name].hint}
            data-invalid={fault !== undefined || undefined}
          >
            <b>{FILTER_TEXT[name].label}</b> <span className="chip-value">{part}</span>
            {fault && <span className="bad"> ignored: {fault}</span>}
            <button
              type="button"
              aria-label={`Remove filter ${FILTER_TEXT[name].label}`}
              onClick={() => without(name, at)}
            >
              ✕
            </button>
          </span>
        );
      })}
      <TransformChips />
      {(given.length > 1 || chips.length > 1 || readTransforms(search.filters?.transform).length > 1) && (
        <Button quiet onClick={() => go({ filters: undefined, root: undefined })}>
          Remove all
        </Button>
      )}
    </>
  );
}

function AddFilter() {
  const { search, go, subject } = usePage();
  const queries = useQueryClient();
  const [open, setOpen] = useState(false);
  const [name, setName] = useState<FilterName>("focus");
  const [value, setValue] = useState("");
  const [fault, setFault] = useState<string | undefined>();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    const text = name === "lifetime" && value === "" ? "leaked" : value.trim();
    if (text === "") return;
    const why = faultOf(name, text);
    setFault(why);
    if (why !== undefined) return;
    const added = takesSeveral(name) ? withPattern(search.filters?.[name], text) : text;
    const asked = documentQuery(subject, "timeline", { points: 1, series: "live_bytes", [name]: added });
    // What only the server knows: a thread or a module that the recording does not have.
    const refused = await queries.fetchQuery({ ...asked, retry: false }).then(
      () => undefined,
      (error: unknown) => (error instanceof ProblemError ? sentence(error.message) : undefined),
    );
    setFault(refused);
    if (refused !== undefined) return;
    go({ filters: { ...search.filters, [name]: added }, root: undefined });
    setOpen(false);
    setValue("");
  };
  if (!open) {
    return (
      <Button quiet onClick={() => setOpen(true)}>
        + Filter
      </Button>
    );
  }
  return (
    <form className="add-filter" onSubmit={submit}>
      <Select
        label="Filter"
        showLabel={false}
        value={name}
        choices={FILTERS.filter((known) => known !== "transform" && known !== "frames").map((known) => ({
          value: known,
          label: FILTER_TEXT[known].label,
        }))}
        onChange={setName}
      />
      {name === "lifetime" ? (
        <Select
          label="Class of lifetime"
          showLabel={false}
          value={value || "leaked"}
          choices={["leaked", "temporary", "freed"].map((lifetime_class) => ({
            value: lifetime_class,
            label: lifetime_class,
          }))}
          onChange={setValue}
        />
      ) : (
        <input
          aria-label="Value of the filter"
          placeholder={FILTER_TEXT[name].hint}
          value={value}
          aria-invalid={fault !== undefined}
          // biome-ignore lint/a11y/noAutofocus: the field appears because its button was pressed
          autoFocus
          spellCheck={false}
          list={name === "context" || name === "thread" ? `${name}-names` : undefined}
          onChange={(event) => {
            setValue(event.target.value);
            setFault(undefined);
          }}
          onKeyDown={(event) => {
            if (event.key === "Escape") setOpen(false);
          }}
        />
      )}
      {name === "context" && <ContextNames />}
      {name === "thread" && <ThreadNames />}
      {fault && (
        <span className="bad" role="alert">
          {name}: {fault}
        </span>
      )}
      <Button type="submit">Add</Button>
      <Button quiet onClick={() => setOpen(false)}>
        Cancel
      </Button>
    </form>
  );
}

/** The request contexts that there are, to be chosen from. */
function ContextNames() {
  const { subject } = usePage();
  const { data } = useQuery(documentQuery(subject, "contexts", {}));
  return (
    <datalist id="context-names">
      {data?.contexts.slice(0, MOST_CHOICES).map(({ id, name, allocations }) => (
        <option key={id} value={name ?? String(id)}>
          {formatBytes(allocations.bytes)}
        </option>
      ))}
    </datalist>
  );
}

/** The threads that there are. */
function ThreadNames() {
  const { subject } = usePage();
  const { data } = useQuery(documentQuery(subject, "threads", {}));
  return (
    <datalist id="thread-names">
      {data?.threads.slice(0, MOST_CHOICES).map(({ id, name, allocated }) => (
        <option key={id} value={name || String(id)}>
          {formatBytes(allocated.bytes)}
        </option>
      ))}
    </datalist>
  );
}

/** The list has the largest first; what is typed need not be in it. */
const MOST_CHOICES = 200;

/** Sets of filters that are kept in this browser; a link shares them with others. */
function Presets() {
  const { search, go } = usePage();
  const openMenu = useMenu();
  const notice = useNotice();
  const [presets, setPresets] = useState<Preset[]>(readPresets);
  const [naming, setNaming] = useState<string>();
  const keep = (next: Preset[]) => {
    setPresets(next);
    if (!writePresets(next)) notice("The browser stores nothing for this page; presets are lost when it is closed.");
  };
  const { filters } = search;
  if (!filters && presets.length === 0) return null;
  if (filters && naming !== undefined) {
    const save = (event: FormEvent) => {
      event.preventDefault();
      const name = naming.trim().slice(0, LONGEST_NAME) || presetName(filters);
      keep([...presets.filter((one) => one.name !== name), { name, filters }]);
      setNaming(undefined);
    };
    return (
      <form className="add-filter" onSubmit={save}>
        <input
          aria-label="Name of the preset"
          placeholder={presetName(filters)}
          value={naming}
          maxLength={LONGEST_NAME}
          // biome-ignore lint/a11y/noAutofocus: the field appears because its menu item was chosen
          autoFocus
          spellCheck={false}
          onChange={(event) => setNaming(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Escape") setNaming(undefined);
          }}
        />
        <Button type="submit">Save</Button>
        <Button quiet onClick={() => setNaming(undefined)}>
          Cancel
        </Button>
      </form>
    );
  }
  return (
    <Button
      quiet
      aria-haspopup="menu"
      onClick={(event) =>
        openMenu(below(event.currentTarget), [
          ...(presets.length > 0 ? [{ heading: "Use" }] : []),
          ...presets.map((preset) => ({
            label: preset.name,
            run: () => go({ filters: preset.filters, root: undefined }),
          })),
          ...(filters
            ? [
                "separator" as const,
                {
                  label: `Save “${presetName(filters)}” as…`,
                  run: () => setNaming(""),
                },
              ]
            : []),
          ...(presets.length > 0 ? ["separator" as const, { heading: "Forget" }] : []),
          ...presets.map((preset) => ({
            label: preset.name,
            run: () => keep(presets.filter((one) => one !== preset)),
          })),
        ])
      }
    >
      Presets
    </Button>
  );
}
