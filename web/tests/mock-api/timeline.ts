// Curves of a synthetic recording. Test fixture.
import type { Series, Timeline } from "../../src/api/types.ts";
import type { MockBlock } from "./recording.ts";
import { exactness, freedBy, makeFilter, number, peakOf, type Query, rangeOf, type View } from "./shared.ts";

export function timeline(view: View, query: Query, only?: number): Timeline {
  const range = rangeOf(view, query);
  const points = Math.max(1, number(query, "points", 600));
  const keepStack = makeFilter(view, query);
  const keep = (block: MockBlock) => (only === undefined || block.site === only) && keepStack(block) !== undefined;
  const step = Math.max(1, (range.to - range.from) / points);
  const columns = Math.max(1, Math.ceil((range.to - range.from) / step));
  const zeros = () => new Array<number>(columns).fill(0);
  const t = zeros().map((_, i) => Math.floor(range.from + i * step));
  const column = (ns: number) => Math.min(columns - 1, Math.floor((ns - range.from) / step));
  const [allocs, frees] = [zeros(), zeros()];
  const threadAllocs = new Map(view.recording.threads.map((thread) => [thread.id, zeros()]));
  const changes: [number, number, number][] = [];
  let [bytes, count] = [0, 0];
  for (const block of view.recording.blocks) {
    if (block.allocated >= range.to || !keep(block)) continue;
    const freed = freedBy(view, block);
    if (block.allocated < range.from) {
      if (freed >= range.from) {
        bytes += block.size;
        count += 1;
      }
    } else {
      changes.push([block.allocated, block.size, 1]);
      allocs[column(block.allocated)] = (allocs[column(block.allocated)] ?? 0) + 1;
      const mine = threadAllocs.get(block.thread);
      if (mine) mine[column(block.allocated)] = (mine[column(block.allocated)] ?? 0) + 1;
    }
    if (freed >= range.from && freed < range.to) {
      changes.push([freed, -block.size, -1]);
      frees[column(freed)] = (frees[column(freed)] ?? 0) + 1;
    }
  }
  changes.sort((a, b) => a[0] - b[0]);
  const liveBytes = { min: zeros(), max: zeros(), last: zeros() };
  const liveCount = { min: zeros(), max: zeros(), last: zeros() };
  let at = 0;
  for (let i = 0; i < columns; i += 1) {
    const end = i === columns - 1 ? range.to : range.from + (i + 1) * step;
    const extremes = [bytes, bytes, count, count];
    for (let change = changes[at]; change && change[0] < end; at += 1, change = changes[at]) {
      bytes += change[1];
      count += change[2];
      extremes[0] = Math.min(extremes[0] ?? 0, bytes);
      extremes[1] = Math.max(extremes[1] ?? 0, bytes);
      extremes[2] = Math.min(extremes[2] ?? 0, count);
      extremes[3] = Math.max(extremes[3] ?? 0, count);
    }
    [liveBytes.min[i], liveBytes.max[i], liveCount.min[i], liveCount.max[i]] = extremes as [
      number,
      number,
      number,
      number,
    ];
    liveBytes.last[i] = bytes;
    liveCount.last[i] = count;
  }
  const rate = (values: number[]) => values.map((value) => (value * 1e9) / step);
  const flat = (name: Series["name"], values: number[], thread: number | null = null): Series => ({
    name,
    thread,
    min: values,
    max: values,
    last: values,
  });
  const all: Record<string, () => Series[]> = {
    live_bytes: () => [{ name: "live_bytes", thread: null, ...liveBytes }],
    live_count: () => [{ name: "live_count", thread: null, ...liveCount }],
    occupied_bytes: () => [
      flat(
        "occupied_bytes",
        liveBytes.max.map((value) => Math.ceil((value ?? 0) / 4096) * 4096),
      ),
    ],
    alloc_rate: () => [flat("alloc_rate", rate(allocs))],
    free_rate: () => [flat("free_rate", rate(frees))],
    rss: () => {
      let high = 6_000_000;
      const values = liveBytes.max.map((value) => {
        high = Math.max(high, value * 1.15 + 6_000_000);
        return Math.round(high);
      });
      return [flat("rss", values)];
    },
    thread_rate: () => [...threadAllocs].map(([id, values]) => flat("thread_rate", rate(values), id)),
  };
  return {
    schema: "heaptrace.timeline/1",
    from_ns: range.from,
    to_ns: range.to,
    t_ns: t,
    series: (query.get("series") ?? "live_bytes,alloc_rate,rss").split(",").flatMap((name) => all[name]?.() ?? []),
    marks: view.recording.marks.filter((mark) => mark.t_ns >= range.from && mark.t_ns < range.to),
    captures: [{ from_ns: 0, to_ns: view.watermark }],
    peak: peakOf(view, range, keep),
    peak_of: "heap",
    exactness: exactness(view),
  };
}
