// Small computations behind the views: layers, names for tables, notes, generations, faults of filters, advice.
import { expect, test } from "vitest";
import type { Functions, KeptReplay, LeakFunction, Leaks, Memory, Module, Pins, Threads } from "../../src/api/types.ts";
import { matchesIn } from "../../src/features/calltree/rows.ts";
import { findingsOf, growingSubject } from "../../src/features/overview/findings.ts";
import { auditOf } from "../../src/features/recording/audit.ts";
import { buildTracks } from "../../src/features/timeline/tracks.ts";
import { faultOf } from "../../src/lib/filter-values.ts";
import { buildTree } from "../../src/lib/flame-tree.ts";
import { generationsOf } from "../../src/lib/generations.ts";
import { layerAt, stackUp } from "../../src/lib/layers.ts";
import { bareName } from "../../src/lib/names.ts";
import { effectiveMetric, filterParameters, suppressionParameters } from "../../src/lib/request.ts";
import { readSearch, writeSearch } from "../../src/lib/search-params.ts";
import { adviceOn, unnamedOf } from "../../src/lib/unnamed.ts";
import { toCsv } from "../../src/ui/data-table.tsx";
import { boxLabel } from "../../src/ui/flame/box-text.ts";
import { parseNotes } from "../../src/ui/notes.ts";
import { leaks } from "../mock-api/leaks.ts";
import { info } from "../mock-api/process.ts";
import { typicalRecording } from "../mock-api/recording.ts";
import { timeline } from "../mock-api/timeline.ts";
import { flamegraph } from "../mock-api/trees.ts";

const recording = typicalRecording(10);
const view = { recording, watermark: recording.durationNs, running: false };

test("layers lie on one another, and a point is in one of them", () => {
  const edges = stackUp([
    [1, 2],
    [3, 0],
    [0, 5],
  ]);
  expect(edges).toEqual([
    [1, 2],
    [4, 2],
    [4, 7],
  ]);
  expect([0, 0.9, 1, 3.9, 4, -1].map((value) => layerAt(edges, 0, value))).toEqual([0, 0, 1, 1, undefined, undefined]);
  // A layer that is empty there is never hit.
  expect(layerAt(edges, 1, 2)).toBe(2);
});

test("names in tables begin with what tells them apart", () => {
  const cases: [string, string][] = [
    ["hdr_init(int)", "hdr_init"],
    ["void fold<std::string>(std::map<std::string, int>&, int)", "fold<std::string>"],
    ["std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector<int>::push_back"],
    ["Cache::find(std::string const&) const", "Cache::find"],
    ["main::{lambda(int)#3}::operator()(int) const", "main::{lambda(int)#3}::operator()"],
    ["operator new(unsigned long)", "operator new"],
    ["operator delete[](void*)", "operator delete[]"],
    ["Widget::operator<<(std::ostream&)", "Widget::operator<<"],
    ["(anonymous namespace)::pool::pool()", "(anonymous namespace)::pool::pool"],
    ["std::unique_ptr<Item> make<Item>(int)", "make<Item>"],
    ["<alloc::vec::Vec<T> as core::iter::Extend<T>>::extend", "<alloc::vec::Vec<T> as core::iter::Extend<T>>::extend"],
    ["core::ops::function::FnOnce::call_once{{vtable.shim}}", "core::ops::function::FnOnce::call_once{{vtable.shim}}"],
    ["0xa57ba", "0xa57ba"],
    ["Encoder.iterencode", "Encoder.iterencode"],
    ["_PyObject_New", "_PyObject_New"],
    ["", ""],
  ];
  for (const [name, bare] of cases) expect(bareName(name), name).toBe(bare);
  for (const hostile of ["(".repeat(5000), "<(".repeat(3000), ")".repeat(5000), " ".repeat(999)])
    expect(bareName(hostile, 80).length).toBeLessThanOrEqual(80);
});

test("what has ended is asked for its peak, what runs for what is live", () => {
  expect(effectiveMetric({}, false)).toBe("peak");
  expect(effectiveMetric({}, true)).toBe("live");
  expect(effectiveMetric({ at: 5 }, false)).toBe("live");
  expect(effectiveMetric({ metric: "leaked", at: 5 }, true)).toBe("leaked");
});

test("suppressions are exact names, and travel in the address", () => {
  const search = readSearch(
    writeSearch({ suppress: ["f(int)", "a|b"], unsuppressed: true, pins: "age", layers: "thread" }),
  );
  expect(search).toEqual({ suppress: ["f(int)", "a|b"], unsuppressed: true, pins: "age", layers: "thread" });
  const { suppress, builtin_suppressions } = suppressionParameters(search);
  expect(builtin_suppressions).toBeUndefined();
  const pattern = new RegExp(String(suppress));
  expect(["f(int)", "a|b", "f", "a", "b"].map((name) => pattern.test(name))).toEqual([true, true, false, false, false]);
  expect(readSearch("suppress=%7B%7D&pins=all&folded=bytes,what")).toEqual({});
  expect(suppressionParameters({})).toEqual({ builtin_suppressions: true, suppress: undefined });
});

test("a value that the server would refuse is named and left out", () => {
  expect(faultOf("min_size", "banana")).toContain("no size");
  expect(faultOf("focus", "(")).toBe("no regular expression");
  for (const good of ["64k", "1MiB", "4096", "2 G"]) expect(faultOf("max_size", good)).toBeUndefined();
  for (const good of ["200ms", "1.5s", "100"]) expect(faultOf("min_lifetime", good)).toBeUndefined();
  expect(filterParameters({ min_size: "banana", thread: "worker" })).toEqual({ thread: "worker" });
});

test("marks cut a recording into generations", () => {
  const marks = [
    { t: 30, text: "b" },
    { t: 10, text: "a" },
    { t: 10, text: "a2" },
    { t: 100, text: "end" },
  ];
  expect(generationsOf(marks, 100)).toEqual([
    { name: "(beginning)", from: 0, to: 10 },
    { name: "a, a2", from: 10, to: 30 },
    { name: "b", from: 30, to: 100 },
  ]);
  expect(parseNotes('[{"t":5,"text":"x"},{"t":-1,"text":"y"},{"t":1,"text":""},7,{"t":2,"text":"a"}]')).toEqual([
    { t: 2, text: "a" },
    { t: 5, text: "x" },
  ]);
  expect(parseNotes("{nonsense")).toEqual([]);
});

test("a table is saved as a spreadsheet reads it", () => {
  const columns = [
    {
      id: "a",
      header: "A",
      definition: "",
      width: "1px",
      value: (row: { a: string; b: number }) => row.a,
      cell: () => null,
    },
    {
      id: "b",
      header: "B",
      definition: "",
      width: "1px",
      value: (row: { a: string; b: number }) => row.b,
      cell: () => null,
    },
    { id: "c", header: "C", definition: "", width: "1px", cell: () => null },
  ];
  const rows = [
    { a: 'say "x", y', b: -1 },
    { a: "=1+1", b: 2 },
  ];
  expect(toCsv(columns, rows)).toBe('A,B\r\n"say ""x"", y",-1\r\n\'=1+1,2\r\n');
});

test("a search finds closed branches of the call tree, and a match below a match counts once", () => {
  const tree = buildTree(flamegraph(view, new Map([["metric", "allocated"]])));
  if (!tree) throw new Error("no tree");
  const all = matchesIn(tree, () => true);
  expect(all.value).toBe(tree.children.reduce((sum, child) => sum + (child.frame ? child.value : 0), 0));
  const some = matchesIn(tree, (name) => name.includes("cache"));
  expect(some.nodes.length).toBeGreaterThan(0);
  expect(some.open.size).toBeGreaterThan(0);
  expect(matchesIn(tree, () => false)).toMatchObject({ nodes: [], value: 0 });
});

test("many threads share a track, and every quantity has its own axis", () => {
  const document = timeline(view, new Map([["series", "live_bytes,rss,thread_rate"]]));
  const [one] = document.series.filter((series) => series.name === "thread_rate");
  if (!one) throw new Error("no thread");
  const many = { ...document, series: Array.from({ length: 200 }, (_, i) => ({ ...one, thread: i + 1 })) };
  const tracks = buildTracks(many, 900);
  const threads = tracks.find((track) => track.id === "threads");
  expect(threads?.heat?.length).toBe(200);
  expect(threads?.height).toBeLessThanOrEqual(400);
  expect(buildTracks(document, 900).find((track) => track.id === "bytes")?.curves.length).toBe(2);
});

test("unnamed bytes are those of all rows, the modules those of the largest, with what to do", () => {
  const row = (name: string, module: string, flat: number) => ({ name, module, flat });
  const functions = {
    total: 1000,
    total_matched: 950,
    rows: [
      row("0xa7504", "libsqlite3.so.0", 300),
      row("0x1", "app", 100),
      row("0xdeadbeef", "app", 50),
      row("main", "app", 500),
    ],
  } as unknown as Functions;
  const unnamed = unnamedOf(functions);
  expect(unnamed).toEqual({ part: 0.95, modules: ["libsqlite3.so.0", "app"] });
  const modules = [
    { path: "/usr/lib/libsqlite3.so.0", symbols: "table" },
    { path: "/home/x/app", symbols: "mismatch", build_id: "ab12" },
  ] as unknown as Module[];
  const [sqlite, app] = adviceOn(unnamed, modules);
  expect(sqlite?.doing).toContain("dbgsym");
  expect(app?.why).toContain("not the file that was recorded");
  const other = [{ path: "/home/x/app", symbols: "mismatch", build_id: null }] as unknown as Module[];
  expect(adviceOn({ part: 1, modules: ["app"] }, other)[0]?.why).toContain("has no build id");
});

const leaker = (fields: Partial<LeakFunction> & { function: string }): LeakFunction => ({
  module: "app",
  file: null,
  line: null,
  library: false,
  bytes: 1 << 20,
  count: 1000,
  first_ns: 0,
  last_ns: 1,
  total_sites: 1,
  sites: ["s1"],
  curve: [1, 2, 3],
  verdict: {
    kind: "bounded",
    bytes_per_second: 0,
    confidence: 1,
    why: "because",
    shape: "bounded",
    never_freed: false,
  },
  ...fields,
});

function evidence(functions: LeakFunction[]) {
  const document: Leaks = leaks(view, new Map());
  const bytes = functions.reduce((sum, row) => sum + row.bytes, 0);
  return {
    info: { ...info(view), peak: { bytes: 4 << 20, count: 1, at_ns: 1 } },
    leaks: { ...document, functions, leaked: { bytes, count: 1 } },
    peak: undefined,
    temporary: undefined,
    threads: undefined,
  };
}

test("findings do not miss what was never freed, and do not cry wolf over a few blocks", () => {
  const kept = leaker({ function: "open_session(int)", total_sites: 2 });
  const stopped = { ...kept, verdict: { ...kept.verdict, never_freed: true } };
  const [found] = findingsOf(evidence([stopped]));
  expect(found).toMatchObject({ tone: "warn", figure: "1.00 MiB", view: "leaks", why: "Because." });
  expect(found?.title).toBe("open_session: none of 1,000 blocks was ever freed");
  // A program that was not through might have freed them.
  const cut = evidence([stopped]);
  const [killed] = findingsOf({ ...cut, info: { ...cut.info, end: "killed" } });
  expect(killed?.title).toBe("open_session: none of 1,000 blocks was freed before the recording ended");

  const growing = { ...kept.verdict, kind: "growing" as const, bytes_per_second: 2048 };
  const histogram = leaker({ function: "hdr_init", count: 7, verdict: { ...growing, shape: "stepwise" } });
  expect(findingsOf(evidence([histogram])).map((one) => one.tone)).toEqual(["plain"]);
  const leak = leaker({ function: "leak", verdict: { ...growing, shape: "growing" } });
  expect(findingsOf(evidence([leak]))[0]).toMatchObject({ tone: "bad", figure: "+2.00 KiB/s" });

  // Nothing is called the most that is a tenth.
  const many = Array.from({ length: 10 }, (_, i) => leaker({ function: `f${i}` }));
  expect(findingsOf(evidence(many))).toEqual([]);
  // Nor is what the C library leaves behind.
  expect(findingsOf(evidence([leaker({ function: "0x16a62", bytes: 1590 })]))).toEqual([]);
});

test("a site that leaks below a function that does not is a finding of its own", () => {
  const bounded = leaker({ function: "work", total_sites: 2, sites: ["s1", "s2"] });
  const frame = (name: string, file: string) => ({ function: name, module: "app", file, line: 1, library: false });
  const site = (id: string, caller: string, never_freed: boolean) => ({
    ...leaks(view, new Map()).sites[0],
    id,
    bytes: 1 << 19,
    count: 2500,
    last_ns: 1,
    stack: [frame("work", "/srv/app.c"), frame(caller, "/srv/app.c")],
    verdict: { ...bounded.verdict, never_freed },
  });
  const base = evidence([bounded]);
  const sites = [site("s1", "leak_request", true), site("s2", "cache_put", false)];
  const found = findingsOf({ ...base, leaks: { ...base.leaks, sites } as unknown as Leaks });
  expect(found[0]?.title).toBe("leak_request → work: none of 2,500 blocks was ever freed");
  expect(found[0]?.search).toEqual({ site: "s1" });
  expect(found.filter((one) => one.title.includes("cache_put"))).toEqual([]);
});

test("what keeps growing until the exit frees it is a finding; a few blocks are none", () => {
  const growing = { kind: "growing", shape: "growing", bytes_per_second: 2048, why: "it rose", freed_at_exit: true };
  const site = (id: string, bytes: number, count: number, file = "a.c") => ({
    id,
    bytes,
    count,
    stack: [{ function: "cache_insert", file, line: 3, module: "app", inlined: false, library: false }],
    verdict: growing,
  });
  const base = evidence([]);
  const of = (freed_at_exit: unknown[]) =>
    findingsOf({ ...base, leaks: { ...base.leaks, sites: [], freed_at_exit } as unknown as Leaks });
  const [found, ...more] = of([site("s1", 300_000, 100), site("s2", 200_000, 50)]);
  expect(found).toMatchObject({ figure: "+4.00 KiB/s", tone: "warn", view: "sites", search: { site: "s1" } });
  expect(found?.title).toBe("cache_insert keeps growing, and is freed only at exit");
  expect(found?.text).toMatch(/^488 KiB in 150 blocks/);
  expect(more).toEqual([]);
  expect(of([site("s1", 64, 4)])).toEqual([]);
  expect(of([site("s1", 500_000, 4)])).toEqual([]);
  // Functions of one name in two files are two.
  expect(of([site("s1", 300_000, 100), site("s2", 400_000, 50, "b.c")])[0]).toMatchObject({
    text: expect.stringMatching(/^391 KiB in 50 blocks/),
    search: { site: "s2" },
  });
});

test("what is mapped again and again and never unmapped is a finding; a pool is none", () => {
  const stack = [{ function: "grow_index", file: "a.c", line: 3, module: "app", inlined: false, library: false }];
  const base = evidence([]);
  const of = (count: number, bytes: number) =>
    findingsOf({
      ...base,
      leaks: {
        ...base.leaks,
        sites: [],
        still_mapped: [{ bytes, count, first_ns: 1e6, last_ns: 2e9, stack }],
      } as unknown as Leaks,
    });
  const [found] = of(60, 60 << 20);
  expect(found).toMatchObject({ figure: "60.0 MiB", tone: "warn", view: "memory" });
  expect(found?.title).toBe("grow_index: mapped and never unmapped");
  expect(found?.text).toBe("60 mappings beside the blocks. The last one was made at 2.000 s.");
  expect(of(4, 60 << 20)).toEqual([]);
  expect(of(60, 60)).toEqual([]);
});

test("what Python calls alike in every file has its file beside it", () => {
  const verdict = { ...leaker({ function: "" }).verdict, never_freed: true };
  const [found] = findingsOf(evidence([leaker({ function: "<module>", file: "/srv/work.py", verdict })]));
  expect(found?.title).toBe("<module> work.py: none of 1,000 blocks was ever freed");
  expect(boxLabel("<listcomp>", "/srv/work.py")).toBe("<listcomp> work.py");
  expect(boxLabel("<lambda>", null)).toBe("<lambda>");
  expect(boxLabel("<alloc::vec::Vec<T> as core::ops::Drop>::drop", "vec.rs")).not.toContain("vec.rs");
  expect(boxLabel("loads(str)", "/usr/lib/json.py")).toBe("loads");
});

test("of what grows the thread is named that makes nearly all of it", () => {
  const verdict = { ...leaker({ function: "f" }).verdict, kind: "growing" as const, shape: "growing" as const };
  const base = evidence([leaker({ function: "log_line", verdict })]);
  const growers = (flat: number) => ({ total: 100, rows: [{ name: "collector", flat }] }) as unknown as Functions;
  const threads = { threads: [{ id: 1 }, { id: 2 }], pairs: [] } as unknown as Threads;
  const [all] = findingsOf({ ...base, growers: growers(100), threads });
  expect(all?.text).toMatch(/All of them by thread “collector”\.$/);
  expect(findingsOf({ ...base, growers: growers(95), threads })[0]?.text).toContain("Nearly all");
  expect(findingsOf({ ...base, growers: growers(60), threads })[0]?.text).not.toContain("collector");
  expect(growingSubject(base.leaks)).toContain("log_line");
});

test("who pins nearly all pages by itself is named, who only calls it is not", () => {
  const row = (name: string, library = false) => ({
    function: name,
    library,
    given_back_bytes: 20 << 20,
    own_bytes: 240_000,
    pages: 5059,
    blocks: 5000,
  });
  const pins = (...rows: unknown[]) =>
    ({ look_ns: 8, pages: { count: 5060, bytes: 5060 * 4096, live_bytes: 1 }, rows }) as unknown as Pins;
  const base = { ...evidence([]), leaks: undefined };
  const [found] = findingsOf({ ...base, pins: pins(row("index_entry"), row("main")) });
  expect(found).toMatchObject({ id: "pins", figure: "20.0 MiB", view: "pins" });
  expect(found?.title).toContain("index_entry");
  expect(findingsOf({ ...base, pins: pins(row("g_malloc", true), row("main")) })).toEqual([]);
});

test("what trim gives back is not said a second time as resident", () => {
  const MIB = 1 << 20;
  const memory = {
    look_ns: 8,
    rss_bytes: 208 * MIB,
    returnable_by_trim_bytes: 190 * MIB,
    rows: [{ key: "live", bytes: MIB, basis: "exact", children: [] }],
  } as unknown as Memory;
  expect(findingsOf({ ...evidence([]), leaks: undefined, memory }).map(({ id }) => id)).toEqual(["trim"]);
});

test("findings name what comes back, and who holds it", () => {
  const row = (key: string, bytes: number) => ({ key, bytes, basis: "exact" as const, children: [] });
  const MIB = 1 << 20;
  const memory = {
    schema: "heaptrace.memory/2",
    at_ns: 9,
    look_ns: 8,
    rss_bytes: 300 * MIB,
    live_bytes: 100 * MIB,
    returnable_by_trim_bytes: 152 * MIB,
    why: "Why.",
    rows: [row("live", 100 * MIB), row("free_pages", 190 * MIB), row("recorder", 10 * MIB)],
  } as unknown as Memory;
  const found = findingsOf({ ...evidence([]), leaks: undefined, memory });
  expect(found[0]).toMatchObject({ id: "trim", figure: "152 MiB", view: "memory", why: "Why." });
});

test("another allocator is a finding where the server says that it holds a tenth less", () => {
  const MIB = 1 << 20;
  const row = (allocator: string, settings: Record<string, string>, high: number) => ({
    allocator,
    settings,
    peak_bytes: [high / 2, high],
    end_bytes: [1, 2],
    cpu_ns: 5,
    command: "./app",
  });
  const replay: KeptReplay = {
    schema: "heaptrace.kept_replay/1",
    checked: true,
    smaller: 1,
    command: "heaptrace replay a.dat",
    replay: {
      schema: "heaptrace.replay/1",
      recorded: { allocator: "glibc 2.36", peak_bytes: 209 * MIB, other_bytes: MIB },
      self_check: { peak_bytes: 211 * MIB, error: 0.01 },
      rows: [row("glibc 2.36", {}, 211 * MIB), row("jemalloc 5.3.0", { dirty_decay_ms: "0" }, 53 * MIB)],
    },
  };
  const base = { ...evidence([]), leaks: undefined };
  const [found, ...more] = findingsOf({ ...base, replay });
  expect(found).toMatchObject({
    id: "replay",
    figure: "53.0 MiB",
    title: "instead of 209 MiB at the peak, by jemalloc 5.3.0 with dirty_decay_ms=0",
    tone: "warn",
    view: "memory",
  });
  expect(found?.text).toContain("is 1.00%");
  expect(more).toEqual([]);
  expect(findingsOf({ ...base, replay: { ...replay, smaller: null } })).toEqual([]);
  expect(findingsOf({ ...base, replay: { ...replay, replay: null, smaller: null } })).toEqual([]);
});

test("each figure of the audit is a part of what it was counted among", () => {
  const whole = info(view);
  const base = { ...whole.recorder, unmatched_frees: 0 };
  const events = { ...whole.events, alloc: 600, realloc: 0, free: 400, map: 0, unmap: 0, remap: 0, brk: 0, lost: 250 };
  const cut = { ...whole, recorder: base, events, exactness: { ...whole.exactness, damaged_blocks: 39 } };
  const value = (id: string) => auditOf(cut).find((entry) => entry.id === id)?.value;
  expect(value("lost")).toBe("250 (20.0%)");
  // Blocks of the file are no part of the events.
  expect(value("damaged")).toBe("39");
});
