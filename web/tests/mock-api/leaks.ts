// Verdicts, leaks, sites and single blocks of a synthetic recording. Test fixture.

import type { Allocations, Leaks, Site, SiteRow, Sites, Verdict } from "../../src/api/types.ts";
import { readKeys, type SortableColumn, sortedRows } from "../../src/lib/sorting.ts";
import { histogram, LIFE_CLASSES, SIZE_CLASSES } from "./classes.ts";
import type { MockBlock } from "./recording.ts";
import {
  add,
  allocatedInside,
  exactness,
  freedBy,
  lifetimeOf,
  makeFilter,
  number,
  pattern,
  peakOf,
  type Query,
  type Range,
  rangeOf,
  stackOf,
  type View,
  wire,
  zero,
} from "./shared.ts";
import { timeline } from "./timeline.ts";

function verdictOf(view: View, blocks: MockBlock[]): Verdict {
  const leaked = blocks.filter((block) => freedBy(view, block) === Number.POSITIVE_INFINITY);
  const bytes = leaked.reduce((sum, block) => sum + block.size, 0);
  const halves = [0, 0];
  for (const block of leaked)
    halves[block.allocated < view.watermark / 2 ? 0 : 1] =
      (halves[block.allocated < view.watermark / 2 ? 0 : 1] ?? 0) + block.size;
  const perSecond = view.watermark > 0 ? bytes / (view.watermark / 1e9) : 0;
  if (leaked.length < 3)
    return {
      kind: leaked.length === 1 ? "one_time" : "unclear",
      bytes_per_second: 0,
      confidence: 0.5,
      why: `Only ${leaked.length} blocks stayed.`,
    };
  const [first = 0, second = 0] = halves;
  if (second > first / 2)
    return {
      kind: "growing",
      bytes_per_second: perSecond,
      confidence: 0.94,
      why: `${leaked.length} blocks stayed, allocated all through the recording, the last ${((view.watermark - (leaked.at(-1)?.allocated ?? 0)) / 1e9).toFixed(2)} s before its end.`,
    };
  return {
    kind: "bounded",
    bytes_per_second: 0,
    confidence: 0.8,
    why: `Nothing that was allocated after ${((leaked.at(-1)?.allocated ?? 0) / 1e9).toFixed(2)} s stayed.`,
  };
}

export function bySite(view: View, keep: (block: MockBlock) => boolean): Map<number, MockBlock[]> {
  const out = new Map<number, MockBlock[]>();
  for (const block of view.recording.blocks) {
    if (!keep(block)) continue;
    const list = out.get(block.site);
    if (list) list.push(block);
    else out.set(block.site, [block]);
  }
  return out;
}

export function leaks(view: View, query: Query): Leaks {
  const range = rangeOf(view, query);
  const filter = makeFilter(view, query);
  const groups = bySite(
    view,
    (block) =>
      block.allocated >= range.from &&
      block.allocated < range.to &&
      freedBy(view, block) === Number.POSITIVE_INFINITY &&
      filter(block) !== undefined,
  );
  const sites = [...groups].map(([site, blocks]) => ({
    id: `s${site}`,
    bytes: blocks.reduce((sum, block) => sum + block.size, 0),
    count: blocks.length,
    first_ns: blocks[0]?.allocated ?? 0,
    last_ns: blocks.at(-1)?.allocated ?? 0,
    verdict: verdictOf(view, blocks),
    stack: stackOf(view, blocks[0] as MockBlock).map(wire),
  }));
  sites.sort((a, b) => b.bytes - a.bytes);
  return {
    schema: "heaptrace.leaks/1",
    leaked: {
      bytes: sites.reduce((sum, site) => sum + site.bytes, 0),
      count: sites.reduce((sum, site) => sum + site.count, 0),
    },
    suppressed: { bytes: 4096, count: 1 },
    total_sites: sites.length,
    sites: sites.slice(number(query, "offset", 0), number(query, "offset", 0) + number(query, "limit", 200)),
    exactness: exactness(view),
  };
}

function siteRow(view: View, site: number, blocks: MockBlock[], range: Range, peakAt: number): SiteRow {
  const frame = view.recording.frames[view.recording.sites[site]?.stack[0] ?? 0];
  const row: SiteRow = {
    id: `s${site}`,
    function: frame?.name ?? null,
    file: frame?.file ?? null,
    line: frame?.line ?? null,
    module: frame?.module ?? null,
    offset: null,
    called_from: view.recording.frames[view.recording.sites[site]?.stack[1] ?? -1]?.name ?? null,
    allocated: zero(),
    freed: zero(),
    live: zero(),
    leaked: zero(),
    at_peak: zero(),
    temporary: zero(),
    lifetimes: { min_ns: 0, p10_ns: 0, p50_ns: 0, p90_ns: 0, max_ns: 0, censored: 0 },
    trend: new Array<number>(32).fill(0),
  };
  for (const block of blocks) {
    const freed = freedBy(view, block);
    const inside = block.allocated >= range.from && block.allocated < range.to;
    if (inside) add(row.allocated, block);
    if (freed >= range.from && freed < range.to) add(row.freed, block);
    if (block.allocated <= range.to && freed > range.to) add(row.live, block);
    if (inside && freed === Number.POSITIVE_INFINITY) add(row.leaked, block);
    if (block.allocated <= peakAt && freed > peakAt) add(row.at_peak, block);
    if (inside && block.temporary) add(row.temporary, block);
    for (let i = 0; i < 32; i += 1) {
      const t = range.from + ((range.to - range.from) * (i + 1)) / 32;
      if (block.allocated <= t && freed > t) row.trend[i] = (row.trend[i] ?? 0) + block.size;
    }
  }
  return row;
}

export function sites(view: View, query: Query): Sites {
  const range = rangeOf(view, query);
  const filter = makeFilter(view, query);
  const peakAt = peakOf(view, { from: 0, to: view.watermark }).at_ns;
  const amount = (id: "live" | "allocated" | "at_peak") => ({
    id,
    numeric: true,
    value: (row: SiteRow) => row[id].bytes,
  });
  const columns: SortableColumn<SiteRow>[] = [
    ...(["live", "allocated", "at_peak"] as const).map(amount),
    { id: "count", numeric: true, value: (row) => row.allocated.count },
    { id: "name", value: (row) => row.function ?? "" },
  ];
  const search = pattern(query, "search");
  const found = [...bySite(view, (block) => block.allocated < range.to && filter(block) !== undefined)]
    .map(([site, blocks]) => siteRow(view, site, blocks, range, peakAt))
    .filter((row) => row.allocated.count + row.freed.count > 0 && (!search || search.test(row.function ?? "")));
  const rows = sortedRows(found, columns, readKeys(query.get("sort"), undefined, { column: "live", reversed: false }));
  const offset = number(query, "offset", 0);
  return {
    schema: "heaptrace.sites/1",
    from_ns: range.from,
    to_ns: range.to,
    total_sites: rows.length,
    sites: rows.slice(offset, offset + number(query, "limit", 100)),
    exactness: exactness(view),
  };
}

export function site(view: View, id: number, query: Query): Site | undefined {
  const known = view.recording.sites[id];
  if (!known) return undefined;
  const range = rangeOf(view, query);
  const all = view.recording.blocks.filter((block) => block.site === id && block.allocated < view.watermark);
  const allocated = all.filter((block) => block.allocated >= range.from && block.allocated < range.to);
  const lives = allocated.map((block) => lifetimeOf(view, block)).sort((a, b) => a - b);
  const quantile = (part: number) => lives[Math.min(lives.length - 1, Math.floor(part * lives.length))] ?? 0;
  const freed = all.filter((block) => freedBy(view, block) >= range.from && freedBy(view, block) < range.to);
  const amount = zero();
  const same = zero();
  for (const block of freed) {
    add(amount, block);
    if (block.thread === block.freeThread) add(same, block);
  }
  const stack = known.stack.flatMap((index) => view.recording.frames[index] ?? []).map(wire);
  return {
    schema: "heaptrace.site/1",
    row: siteRow(view, id, all, range, peakOf(view, { from: 0, to: view.watermark }).at_ns),
    stack,
    timeline: timeline(view, new Map([...query, ["series", "live_bytes,alloc_rate,free_rate"]]), id),
    sizes: histogram(view, allocated, SIZE_CLASSES, (block) => block.size),
    lifetimes: histogram(view, allocated, LIFE_CLASSES, (block) => lifetimeOf(view, block)),
    lifetime_quantiles: {
      min_ns: quantile(0),
      p10_ns: quantile(0.1),
      p50_ns: quantile(0.5),
      p90_ns: quantile(0.9),
      max_ns: lives.at(-1) ?? 0,
      censored: allocated.filter((block) => freedBy(view, block) === Number.POSITIVE_INFINITY).length,
    },
    freed_by: amount.count > 0 ? [{ amount, same_thread: same, stack: stack.slice(1) }] : [],
    verdict: verdictOf(view, all),
    exactness: exactness(view),
  };
}

export function allocations(view: View, query: Query): Allocations {
  const { range, blocks } = allocatedInside(view, query);
  const only = query.get("site");
  const list = only === undefined ? blocks : blocks.filter((block) => `s${block.site}` === only);
  const columns: SortableColumn<MockBlock>[] = [
    { id: "born", value: (block) => block.allocated },
    { id: "size", value: (block) => block.size },
    { id: "lifetime", value: (block) => lifetimeOf(view, block) },
  ];
  const ordered = sortedRows(
    list,
    columns,
    readKeys(query.get("sort"), undefined, { column: "born", reversed: false }),
  );
  const offset = number(query, "offset", number(query, "cursor", 0));
  const limit = number(query, "limit", 100);
  return {
    schema: "heaptrace.allocations/1",
    from_ns: range.from,
    to_ns: range.to,
    total: list.length,
    allocations: ordered.slice(offset, offset + limit).map((block) => {
      const freed = freedBy(view, block);
      const dead = freed !== Number.POSITIVE_INFINITY;
      const stack = stackOf(view, block).map(wire);
      return {
        index: block.index,
        address: `0x${(0x7f10_0000_0000 + block.index * 4096).toString(16)}`,
        size: block.size,
        function: "malloc",
        born_ns: block.allocated,
        died_ns: dead ? freed : null,
        thread: block.thread,
        free_thread: dead ? block.freeThread : null,
        site: `s${block.site}`,
        stack,
        free_stack: dead ? stack.slice(1) : [],
        previous: null,
        next: null,
      };
    }),
    next_cursor: offset + limit < list.length ? String(offset + limit) : null,
    exactness: exactness(view),
  };
}
