// The server's documents, worked out from a synthetic recording the slow and plain way. Test fixture.
import type {
  Allocations,
  Amount,
  Diff,
  Exactness,
  Flamegraph,
  Frame,
  Functions,
  Histogram,
  Info,
  Leaks,
  Lifetimes,
  Modules,
  Series,
  Site,
  SiteRow,
  Sites,
  Sizes,
  Source,
  Threads,
  Timeline,
  Verdict,
} from "../../src/api/types.ts";
import type { MockBlock, MockFrame, MockRecording } from "./recording.ts";

export interface View {
  recording: MockRecording;
  /** Nothing after this instant is known. */
  watermark: number;
  running: boolean;
}

export type Query = ReadonlyMap<string, string>;

interface Range {
  from: number;
  to: number;
}

interface Stacked {
  block: MockBlock;
  /** Leaf first, after hide, show and show_from. */
  stack: MockFrame[];
  sign: number;
}

export class BadParameter extends Error {
  readonly parameter: string;
  constructor(parameter: string, message: string) {
    super(message);
    this.parameter = parameter;
  }
}

function exactness(view: View): Exactness {
  const seen = view.recording.blocks.filter((block) => block.allocated < view.watermark);
  return {
    events: seen.length * 2,
    lost_events: 0,
    damaged_blocks: 0,
    watermark_ns: view.watermark,
    complete: !view.running,
  };
}

function number(query: Query, name: string, fallback: number): number {
  const text = query.get(name);
  if (text === undefined) return fallback;
  const match = /^(\d+(?:\.\d+)?)(ns|us|ms|s)?$/.exec(text);
  if (!match) throw new BadParameter(name, `“${text}” is not a number that ${name} understands.`);
  return Number(match[1]) * ({ ns: 1, us: 1e3, ms: 1e6, s: 1e9 }[match[2] ?? "ns"] ?? 1);
}

function size(query: Query, name: string, fallback: number): number {
  const match = /^(\d+)([kMG]?)i?B?$/.exec(query.get(name) ?? "");
  if (!match) return fallback;
  return Number(match[1]) * ({ "": 1, k: 1024, M: 1048576, G: 1073741824 }[match[2] ?? ""] ?? 1);
}

function pattern(query: Query, name: string): RegExp | undefined {
  const text = query.get(name);
  if (text === undefined) return undefined;
  try {
    return text.startsWith("(?i)") ? new RegExp(text.slice(4), "i") : new RegExp(text);
  } catch {
    throw new BadParameter(name, `“${text}” is not a regular expression.`);
  }
}

function rangeOf(view: View, query: Query): Range {
  return { from: number(query, "from", 0), to: Math.min(view.watermark, number(query, "to", view.watermark)) };
}

/** Free as far as it is known. */
function freedBy(view: View, block: MockBlock): number {
  return block.freed < view.watermark ? block.freed : Number.POSITIVE_INFINITY;
}

function stackOf(view: View, block: MockBlock): MockFrame[] {
  return (view.recording.sites[block.site]?.stack ?? []).flatMap((index) => view.recording.frames[index] ?? []);
}

const matches = (expression: RegExp) => (frame: MockFrame) =>
  expression.test(frame.name) || expression.test(frame.file ?? "");

function makeFilter(view: View, query: Query): (block: MockBlock) => MockFrame[] | undefined {
  const [focus, ignore, hide, show, showFrom, module] = ["focus", "ignore", "hide", "show", "show_from", "module"].map(
    (name) => pattern(query, name),
  );
  const thread = query.get("thread");
  const [minSize, maxSize] = [size(query, "min_size", 0), size(query, "max_size", Number.POSITIVE_INFINITY)];
  const [minLife, maxLife] = [
    number(query, "min_lifetime", 0),
    number(query, "max_lifetime", Number.POSITIVE_INFINITY),
  ];
  const lifetime_class = query.get("lifetime");
  const bySite = new Map<number, MockFrame[] | null>();
  const stackFor = (block: MockBlock): MockFrame[] | null => {
    const known = bySite.get(block.site);
    if (known !== undefined) return known;
    let stack: MockFrame[] | null = stackOf(view, block);
    if (focus && !stack.some(matches(focus))) stack = null;
    if (stack && ignore && stack.some(matches(ignore))) stack = null;
    if (stack && module && !stack.some((frame) => module.test(frame.module))) stack = null;
    if (stack && showFrom) {
      const last = stack.findLastIndex(matches(showFrom));
      stack = last < 0 ? null : stack.slice(0, last + 1);
    }
    if (stack && hide) stack = stack.filter((frame) => !matches(hide)(frame));
    if (stack && show) stack = stack.filter(matches(show));
    bySite.set(block.site, stack);
    return stack;
  };
  return (block) => {
    if (block.allocated >= view.watermark) return undefined;
    const freed = freedBy(view, block);
    const life = Math.min(freed, view.watermark) - block.allocated;
    if (block.size < minSize || block.size > maxSize || life < minLife || life > maxLife) return undefined;
    if (
      thread !== undefined &&
      String(block.thread) !== thread &&
      view.recording.threads[block.thread - 1]?.name !== thread
    )
      return undefined;
    if (lifetime_class === "leaked" && freed !== Number.POSITIVE_INFINITY) return undefined;
    if (lifetime_class === "freed" && freed === Number.POSITIVE_INFINITY) return undefined;
    if (lifetime_class === "temporary" && !block.temporary) return undefined;
    return stackFor(block) ?? undefined;
  };
}

/** Instant and bytes of the peak inside a range. */
function peakOf(view: View, range: Range, keep: (block: MockBlock) => unknown = () => true) {
  const changes: [number, number, number][] = [];
  for (const block of view.recording.blocks) {
    if (block.allocated >= range.to || !keep(block)) continue;
    changes.push([block.allocated, block.size, 1]);
    const freed = freedBy(view, block);
    if (freed < range.to) changes.push([freed, -block.size, -1]);
  }
  changes.sort((a, b) => a[0] - b[0]);
  let [bytes, count] = [0, 0];
  let peak = { bytes: 0, count: 0, at_ns: range.from };
  let atStart = true;
  for (const [t, byBytes, byCount] of changes) {
    if (t >= range.from && atStart) {
      atStart = false;
      peak = { bytes, count, at_ns: range.from };
    }
    bytes += byBytes;
    count += byCount;
    if (t >= range.from && bytes > peak.bytes) peak = { bytes, count, at_ns: t };
  }
  return atStart ? { bytes, count, at_ns: range.from } : peak;
}

/** The blocks that a metric adds up. */
function selected(view: View, query: Query): { blocks: Stacked[]; range: Range; at: number | null } {
  const metric = query.get("metric") ?? "live";
  const range = rangeOf(view, query);
  const keep = makeFilter(view, query);
  const atText = query.get("at");
  if (atText !== undefined && (query.has("from") || query.has("to")))
    throw new BadParameter("at", "“at” excludes “from” and “to”.");
  const at =
    metric === "peak"
      ? peakOf(view, range, keep).at_ns
      : metric === "live"
        ? atText === undefined
          ? range.to
          : number(query, "at", range.to)
        : null;
  const live = (block: MockBlock, t: number) => block.allocated <= t && freedBy(view, block) > t;
  const inside = (t: number) => t >= range.from && t < range.to;
  const signOf = (block: MockBlock): number => {
    const freed = freedBy(view, block);
    switch (metric) {
      case "live":
      case "peak":
        return live(block, at ?? 0) ? 1 : 0;
      case "leaked":
        return inside(block.allocated) && freed === Number.POSITIVE_INFINITY ? 1 : 0;
      case "allocated":
        return inside(block.allocated) ? 1 : 0;
      case "freed":
        return inside(freed) ? 1 : 0;
      case "temporary":
        return inside(block.allocated) && block.temporary ? 1 : 0;
      case "grown":
        return (
          Number(inside(block.allocated) && !(freed < range.to)) - Number(block.allocated < range.from && inside(freed))
        );
      default:
        throw new BadParameter("metric", `“${metric}” is not a metric.`);
    }
  };
  const blocks: Stacked[] = [];
  for (const block of view.recording.blocks) {
    const sign = signOf(block);
    if (sign === 0) continue;
    const stack = keep(block);
    if (stack) blocks.push({ block, stack, sign });
  }
  return { blocks, range, at };
}

interface TreeNode {
  id: number;
  frame: MockFrame | null;
  value: number;
  weight: number;
  own: number;
  parent: TreeNode | null;
  children: Map<MockFrame, TreeNode>;
}

/** Ids must not depend on the query: they are numbers of paths, given out once a recording. */
const pathIds = new Map<string, number>();

function pathId(key: string): number {
  const known = pathIds.get(key);
  if (known !== undefined) return known;
  pathIds.set(key, pathIds.size + 1);
  return pathIds.size;
}

export function flamegraph(view: View, query: Query): Flamegraph {
  const unit = query.get("unit") === "count" ? "count" : "bytes";
  const inverted = query.get("inverted") === "true";
  const { blocks, range, at } = selected(view, query);
  const root: TreeNode = { id: 0, frame: null, value: 0, weight: 0, own: 0, parent: null, children: new Map() };
  for (const { block, stack, sign } of blocks) {
    const amount = sign * (unit === "bytes" ? block.size : 1);
    let node = root;
    let key = inverted ? "i" : "t";
    root.value += amount;
    root.weight += Math.abs(amount);
    const path = inverted ? stack : [...stack].reverse();
    for (const frame of path) {
      key += ` ${view.recording.frames.indexOf(frame)}`;
      let child = node.children.get(frame);
      if (!child) {
        child = { id: pathId(key), frame, value: 0, weight: 0, own: 0, parent: node, children: new Map() };
        node.children.set(frame, child);
      }
      child.value += amount;
      child.weight += Math.abs(amount);
      node = child;
    }
    node.own += amount;
  }
  let start = root;
  const asked = Number(query.get("root") ?? 0);
  if (asked > 0) {
    const found = findNode(root, asked);
    if (!found) throw new BadParameter("root", `There is no node ${asked} in this flame graph.`);
    start = found;
  }
  const least = (start.weight * Number(query.get("min_px") ?? 1)) / Number(query.get("width") ?? 1400);
  const budget = Number(query.get("max_nodes") ?? 2000);
  const frames: MockFrame[] = [];
  const index = (frame: MockFrame | null): number | null => {
    if (!frame) return null;
    const known = frames.indexOf(frame);
    return known >= 0 ? known : frames.push(frame) - 1;
  };
  const rows: Flamegraph["rows"] = { id: [], parent: [], frame: [], value: [], own: [], folded: [] };
  const work: [TreeNode, number][] = [[start, 0]];
  for (let next = work.pop(); next; next = work.pop()) {
    const [node, parent] = next;
    const row = rows.id.length;
    push(rows, node.id, parent, index(node.frame), node.value, node.own, 0);
    const children = [...node.children.values()].sort((a, b) => b.weight - a.weight);
    const wide = children.filter((child) => child.weight >= least && rows.id.length + work.length < budget);
    const rest = children.filter((child) => !wide.includes(child));
    for (const child of wide.reverse()) work.push([child, row]);
    if (rest.length > 0) {
      const value = rest.reduce((sum, child) => sum + child.value, 0);
      push(
        rows,
        node.id,
        row,
        null,
        value,
        value,
        rest.reduce((sum, child) => sum + countNodes(child), 0),
      );
    }
  }
  const ancestors: Flamegraph["ancestors"] = [];
  for (let node = start.parent; node; node = node.parent)
    ancestors.unshift({ id: node.id, frame: index(node.frame), value: node.value });
  return {
    schema: "heaptrace.flamegraph/1",
    metric: (query.get("metric") ?? "live") as Flamegraph["metric"],
    unit,
    from_ns: range.from,
    to_ns: range.to,
    at_ns: at,
    inverted,
    total: root.value,
    ancestors,
    rows,
    frames,
    exactness: exactness(view),
  };
}

function push(
  rows: Flamegraph["rows"],
  id: number,
  parent: number,
  frame: number | null,
  value: number,
  own: number,
  folded: number,
): void {
  rows.id.push(id);
  rows.parent.push(parent);
  rows.frame.push(frame);
  rows.value.push(value);
  rows.own.push(own);
  rows.folded.push(folded);
}

function findNode(root: TreeNode, id: number): TreeNode | undefined {
  const work = [root];
  for (let node = work.pop(); node; node = work.pop()) {
    if (node.id === id) return node;
    work.push(...node.children.values());
  }
  return undefined;
}

function countNodes(node: TreeNode): number {
  let count = 1;
  for (const child of node.children.values()) count += countNodes(child);
  return count;
}

export function functions(view: View, query: Query): Functions {
  const unit = query.get("unit") === "count" ? "count" : "bytes";
  const asked = (query.get("by") ?? "function") as Functions["by"];
  // No function here is a library's.
  const by = asked === "program" ? "function" : asked;
  const { blocks, range, at } = selected(view, query);
  const rows = new Map<string, Functions["rows"][number]>();
  let total = 0;
  for (const { block, stack, sign } of blocks) {
    const value = sign * (unit === "bytes" ? block.size : 1);
    const other = sign * (unit === "bytes" ? 1 : block.size);
    total += value;
    const seen = new Set<string>();
    const chain = by === "thread" || by === "site" ? stack.slice(0, 1) : stack;
    chain.forEach((frame, depth) => {
      const key =
        by === "function"
          ? `f${view.recording.frames.indexOf(frame)}`
          : by === "file"
            ? (frame.file ?? "unknown")
            : by === "module"
              ? frame.module
              : by === "thread"
                ? `t${block.thread}`
                : `s${block.site}`;
      let row = rows.get(key);
      if (!row) {
        const name =
          by === "file" || by === "module"
            ? key
            : by === "thread"
              ? (view.recording.threads[block.thread - 1]?.name ?? key)
              : frame.name;
        const shown = by === "function" || by === "site";
        row = {
          id: key,
          name,
          module: shown ? frame.module : null,
          file: shown ? frame.file : null,
          line: shown ? frame.line : null,
          library: shown && frame.library,
          flat: 0,
          cum: 0,
          flat_other: 0,
          cum_other: 0,
        };
        rows.set(key, row);
      }
      if (depth === 0) {
        row.flat += value;
        row.flat_other += other;
      }
      if (seen.has(key)) return;
      seen.add(key);
      row.cum += value;
      row.cum_other += other;
    });
  }
  const search = pattern(query, "search");
  const sort = query.get("sort") ?? "flat";
  const list = [...rows.values()]
    .filter((row) => !search || search.test(row.name))
    .sort((a, b) =>
      sort === "name"
        ? a.name.localeCompare(b.name)
        : sort === "cum"
          ? Math.abs(b.cum) - Math.abs(a.cum)
          : Math.abs(b.flat) - Math.abs(a.flat),
    );
  if (query.get("ascending") === "true") list.reverse();
  const offset = number(query, "offset", 0);
  return {
    schema: "heaptrace.functions/1",
    metric: (query.get("metric") ?? "live") as Functions["metric"],
    unit,
    by: asked,
    from_ns: range.from,
    to_ns: range.to,
    at_ns: at,
    total,
    total_rows: list.length,
    rows: list.slice(offset, offset + number(query, "limit", 200)),
    exactness: exactness(view),
  };
}

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

const zero = (): Amount => ({ bytes: 0, count: 0 });

function add(amount: Amount, block: MockBlock): void {
  amount.bytes += block.size;
  amount.count += 1;
}

function wire(frame: MockFrame, i: number): Frame {
  return {
    function: frame.name,
    file: frame.file,
    line: frame.line,
    module: frame.module,
    inlined: frame.inlined,
    library: frame.library,
    address: `0x${(0x55550000 + i * 64).toString(16)}`,
  };
}

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

function bySite(view: View, keep: (block: MockBlock) => boolean): Map<number, MockBlock[]> {
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
  const sort = (query.get("sort") ?? "live") as "live" | "allocated" | "count";
  const key = (row: SiteRow) => (sort === "count" ? row.allocated.count : row[sort].bytes);
  const search = pattern(query, "search");
  const rows = [...bySite(view, (block) => block.allocated < range.to && filter(block) !== undefined)]
    .map(([site, blocks]) => siteRow(view, site, blocks, range, peakAt))
    .filter((row) => row.allocated.count + row.freed.count > 0 && (!search || search.test(row.function ?? "")))
    .sort((a, b) => key(b) - key(a));
  if (query.get("ascending") === "true") rows.reverse();
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

function histogram(view: View, blocks: MockBlock[], lower: number[], of: (block: MockBlock) => number): Histogram {
  const out: Histogram = {
    lower,
    count: lower.map(() => 0),
    bytes: lower.map(() => 0),
    live_count: lower.map(() => 0),
  };
  for (const block of blocks) {
    const i = Math.max(
      0,
      lower.findLastIndex((bound) => bound <= of(block)),
    );
    out.count[i] = (out.count[i] ?? 0) + 1;
    out.bytes[i] = (out.bytes[i] ?? 0) + block.size;
    if (freedBy(view, block) === Number.POSITIVE_INFINITY) out.live_count[i] = (out.live_count[i] ?? 0) + 1;
  }
  return out;
}

const SIZE_CLASSES = [
  0,
  ...Array.from({ length: 88 }, (_, i) => Math.floor(2 ** (i >> 2) * (1 + (i & 3) / 4))).filter(
    (value, i, all) => value !== all[i - 1],
  ),
];
const LIFE_CLASSES = [0, ...Array.from({ length: 74 }, (_, i) => Math.floor(2 ** (i / 2)))].filter(
  (value, i, all) => value !== all[i - 1],
);

function lifetimeOf(view: View, block: MockBlock): number {
  return Math.min(freedBy(view, block), view.watermark) - block.allocated;
}

function allocatedInside(view: View, query: Query): { range: Range; blocks: MockBlock[] } {
  const range = rangeOf(view, query);
  const filter = makeFilter(view, query);
  return {
    range,
    blocks: view.recording.blocks.filter(
      (block) => block.allocated >= range.from && block.allocated < range.to && filter(block) !== undefined,
    ),
  };
}

export function sizes(view: View, query: Query): Sizes {
  const { range, blocks } = allocatedInside(view, query);
  const exact = new Map<number, number>();
  for (const block of blocks) exact.set(block.size, (exact.get(block.size) ?? 0) + 1);
  return {
    schema: "heaptrace.sizes/1",
    from_ns: range.from,
    to_ns: range.to,
    histogram: histogram(view, blocks, SIZE_CLASSES, (block) => block.size),
    commonest: [...exact]
      .map(([bytes, count]) => ({ size: bytes, count }))
      .sort((a, b) => b.count - a.count)
      .slice(0, 32),
    exactness: exactness(view),
  };
}

export function lifetimes(view: View, query: Query): Lifetimes {
  const { range, blocks } = allocatedInside(view, query);
  const mapLife = Array.from({ length: 38 }, (_, i) => (i === 0 ? 0 : 2 ** i));
  const mapSize = Array.from({ length: 22 }, (_, i) => (i === 0 ? 0 : 2 ** i));
  const [count, bytes] = [
    new Array<number>(mapLife.length * mapSize.length).fill(0),
    new Array<number>(mapLife.length * mapSize.length).fill(0),
  ];
  for (const block of blocks) {
    const cell =
      mapSize.findLastIndex((bound) => bound <= block.size) * mapLife.length +
      mapLife.findLastIndex((bound) => bound <= lifetimeOf(view, block));
    count[cell] = (count[cell] ?? 0) + 1;
    bytes[cell] = (bytes[cell] ?? 0) + block.size;
  }
  return {
    schema: "heaptrace.lifetimes/1",
    from_ns: range.from,
    to_ns: range.to,
    histogram: histogram(view, blocks, LIFE_CLASSES, (block) => lifetimeOf(view, block)),
    map_lifetime: mapLife,
    map_size: mapSize,
    map_count: count,
    map_bytes: bytes,
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
  const sort = query.get("sort") ?? "born";
  const key = (block: MockBlock) =>
    sort === "size" ? block.size : sort === "lifetime" ? lifetimeOf(view, block) : block.allocated;
  const down = query.get("descending") === "true" ? -1 : 1;
  const ordered = [...list].sort((a, b) => down * (key(a) - key(b)) || a.index - b.index);
  const offset = number(query, "cursor", 0);
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
