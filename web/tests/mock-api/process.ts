// What a synthetic recording says of its process, threads, modules and sources, and what changed in it. Test fixture.
import type { Amount, Diff, Info, Modules, Source, Threads } from "../../src/api/types.ts";
import type { MockBlock } from "./recording.ts";
import {
  add,
  exactness,
  freedBy,
  makeFilter,
  number,
  peakOf,
  type Query,
  rangeOf,
  selected,
  stackOf,
  type View,
  wire,
  zero,
} from "./shared.ts";

export function threads(view: View, query: Query): Threads {
  const range = rangeOf(view, query);
  const filter = makeFilter(view, query);
  const list = view.recording.threads.map((thread) => ({
    id: thread.id,
    os_thread: 4711 + thread.id,
    name: thread.name,
    started_ns: thread.id * 1000,
    ended_ns: null as number | null,
    allocated: zero(),
    freed: zero(),
    live: zero(),
    leaked: zero(),
    temporary: zero(),
  }));
  const pairs = new Map<string, Threads["pairs"][number]>();
  for (const block of view.recording.blocks) {
    if (!filter(block)) continue;
    const mine = list[block.thread - 1];
    const freed = freedBy(view, block);
    const inside = block.allocated >= range.from && block.allocated < range.to;
    if (mine && inside) add(mine.allocated, block);
    if (mine && inside && freed === Number.POSITIVE_INFINITY) add(mine.leaked, block);
    if (mine && inside && block.temporary) add(mine.temporary, block);
    if (mine && block.allocated <= range.to && freed > range.to) add(mine.live, block);
    if (freed < range.from || freed >= range.to) continue;
    const freer = list[block.freeThread - 1];
    if (freer) add(freer.freed, block);
    const key = `${block.thread} ${block.freeThread}`;
    const pair = pairs.get(key) ?? { allocated_by: block.thread, freed_by: block.freeThread, amount: zero() };
    add(pair.amount, block);
    pairs.set(key, pair);
  }
  return {
    schema: "heaptrace.threads/1",
    from_ns: range.from,
    to_ns: range.to,
    threads: list,
    pairs: [...pairs.values()],
    exactness: exactness(view),
  };
}

export function modules(view: View): Modules {
  const names = [...new Set(view.recording.frames.map((frame) => frame.module))];
  return {
    schema: "heaptrace.modules/1",
    modules: names.map((name, id) => ({
      id,
      path: name.includes(".so") ? `/usr/lib/x86_64-linux-gnu/${name}` : `/srv/app/${name}`,
      build_id: id % 4 === 3 ? null : `${"9f3a17bc".repeat(5)}`.slice(0, 38 - id) + "ab".slice(0, id),
      start: `0x${(0x7f0000000000 + id * 0x200000).toString(16)}`,
      size: 2_000_000 + id * 7777,
      loaded_ns: id * 10_000,
      unloaded_ns: null,
      symbols: (["debug", "table", "debug", "missing"] as const)[id % 4] ?? "none",
      addresses: view.recording.frames.filter((frame) => frame.module === name).length,
      named: view.recording.frames.filter((frame) => frame.module === name).length,
      note: id % 4 === 3 ? "no such file on this machine" : null,
    })),
    exactness: exactness(view),
  };
}

export function diff(view: View, query: Query, other: View | undefined): Diff {
  const unit = query.get("unit") === "count" ? "count" : "bytes";
  const range = rangeOf(view, query);
  const filter = makeFilter(view, query);
  const rows = new Map<string, Diff["rows"][number]>();
  const rowOf = (from: View, block: MockBlock, withSurvived: boolean) => {
    const stack = stackOf(from, block);
    const key = stack.map((frame) => frame.name).join(" ");
    const row = rows.get(key) ?? {
      before: zero(),
      after: zero(),
      survived: withSurvived ? zero() : null,
      stack: stack.map(wire),
    };
    rows.set(key, row);
    return row;
  };
  const live = (from: View, block: MockBlock, t: number) => block.allocated <= t && freedBy(from, block) > t;
  for (const block of view.recording.blocks) {
    if (!filter(block)) continue;
    if (other) {
      if (live(view, block, view.watermark)) add(rowOf(view, block, false).before, block);
      continue;
    }
    const [before, after] = [live(view, block, range.from), live(view, block, range.to)];
    if (!before && !after) continue;
    const row = rowOf(view, block, true);
    if (before) add(row.before, block);
    if (after) add(row.after, block);
    if (before && after && row.survived) add(row.survived, block);
  }
  if (other)
    for (const block of other.recording.blocks)
      if (live(other, block, other.watermark)) add(rowOf(other, block, false).after, block);
  const list = [...rows.values()].filter(
    (row) => row.before.bytes !== row.after.bytes || row.before.count !== row.after.count,
  );
  list.sort((a, b) => Math.abs(b.after[unit] - b.before[unit]) - Math.abs(a.after[unit] - a.before[unit]));
  const sum = (side: "before" | "after") =>
    [...rows.values()].reduce(
      (total, row) => ({ bytes: total.bytes + row[side].bytes, count: total.count + row[side].count }),
      zero(),
    );
  return {
    schema: "heaptrace.diff/1",
    unit,
    before: other ? `${view.recording.title} at its end` : `at ${(range.from / 1e9).toFixed(3)} s`,
    after: other ? `${other.recording.title} at its end` : `at ${(range.to / 1e9).toFixed(3)} s`,
    total_before: sum("before"),
    total_after: sum("after"),
    total_rows: list.length,
    rows: list.slice(0, number(query, "limit", 200)),
    exactness: exactness(view),
  };
}

export function info(view: View): Info {
  const { recording, watermark } = view;
  const seen = recording.blocks.filter((block) => block.allocated < watermark);
  const dead = seen.filter((block) => freedBy(view, block) !== Number.POSITIVE_INFINITY);
  const sum = (blocks: MockBlock[]): Amount => ({
    bytes: blocks.reduce((total, block) => total + block.size, 0),
    count: blocks.length,
  });
  const peak = peakOf(view, { from: 0, to: watermark });
  const [name = "", pid = "0"] = recording.title.split(" ");
  return {
    schema: "heaptrace.info/1",
    process: {
      pid: Number(pid),
      parent_pid: 1,
      executable: `/srv/app/${name}`,
      arguments: [`./${name}`, "--listen", "127.0.0.1:8443", "--workers", "4"],
      started_at: "2026-11-20T09:12:31.004512331Z",
      duration_ns: watermark,
    },
    complete: !view.running,
    end: view.running ? "running" : "exit",
    events: { alloc: seen.length, free: dead.length, realloc: 0, map: 12, unmap: 3, remap: 0, brk: 9, lost: 0 },
    allocations: sum(seen),
    peak,
    peak_rss:
      seen.length > 0
        ? { bytes: Math.round(peak.bytes * 1.15 + 6_000_000), recorder_bytes: 3_400_000, at_ns: peak.at_ns }
        : null,
    leaked: sum(seen.filter((block) => freedBy(view, block) === Number.POSITIVE_INFINITY)),
    temporary: {
      ...sum(seen.filter((block) => block.temporary)),
      rule: "freed within 1 later allocation of the same thread",
    },
    threads: recording.threads.length,
    sites: recording.sites.length,
    max_depth: Math.max(0, ...recording.sites.map((known) => known.stack.length)),
    recorder: {
      version: "0.1.0",
      wait_ns: 0,
      chunk_memory_bytes: 2_097_152,
      memory_bytes: 3_400_000,
      clock: "tsc",
      unmatched_frees: 3,
      order_repairs: 0,
      truncated_stacks: 0,
      guessed_stacks: 0,
      slow_stacks: 41,
      nodes: 4120,
      background_cpu_ns: 31_000_000,
      options: [],
      file_bytes: seen.length * 9,
      memory: [],
    },
    marks: recording.marks.filter((mark) => mark.t_ns < watermark),
    captures: [{ from_ns: 0, to_ns: watermark }],
    remarks: [],
    exactness: exactness(view),
  };
}

export function source(view: View, query: Query): Source {
  const file = query.get("file") ?? "";
  const unit = query.get("unit") === "count" ? "count" : "bytes";
  const lines = new Map<number, { line: number; flat: number; cum: number }>();
  for (const { block, stack, sign } of selected(view, query).blocks) {
    const value = sign * (unit === "bytes" ? block.size : 1);
    const seen = new Set<number>();
    stack.forEach((frame, depth) => {
      if (frame.file !== file || frame.line === null) return;
      const row = lines.get(frame.line) ?? { line: frame.line, flat: 0, cum: 0 };
      lines.set(frame.line, row);
      if (depth === 0) row.flat += value;
      if (!seen.has(frame.line)) row.cum += value;
      seen.add(frame.line);
    });
  }
  const last = Math.max(0, ...lines.keys());
  return {
    schema: "heaptrace.source/1",
    file,
    metric: (query.get("metric") ?? "live") as Source["metric"],
    unit,
    text: file.startsWith("src/")
      ? Array.from({ length: last + 20 }, (_, i) =>
          lines.has(i + 1) ? `    let block = allocate(${i});` : "    // <b>a line</b> of the file",
        ).join("\n")
      : null,
    note: file.startsWith("src/") ? null : "The file is not in a folder that the server may read.",
    lines: [...lines.values()].sort((a, b) => a.line - b.line),
    exactness: exactness(view),
  };
}
