// What the documents share: parameters, filters, and which blocks a query is about. Test fixture.
import type { Amount, Exactness, Frame } from "../../src/api/types.ts";
import type { MockBlock, MockFrame, MockRecording } from "./recording.ts";

export interface View {
  recording: MockRecording;
  /** Nothing after this instant is known. */
  watermark: number;
  running: boolean;
}

export type Query = ReadonlyMap<string, string>;

export interface Range {
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

export function exactness(view: View): Exactness {
  const seen = view.recording.blocks.filter((block) => block.allocated < view.watermark);
  return {
    events: seen.length * 2,
    lost_events: 0,
    damaged_blocks: 0,
    watermark_ns: view.watermark,
    complete: !view.running,
  };
}

export function number(query: Query, name: string, fallback: number): number {
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

export function pattern(query: Query, name: string): RegExp | undefined {
  const text = query.get(name);
  if (text === undefined) return undefined;
  try {
    return text.startsWith("(?i)") ? new RegExp(text.slice(4), "i") : new RegExp(text);
  } catch {
    throw new BadParameter(name, `“${text}” is not a regular expression.`);
  }
}

export function rangeOf(view: View, query: Query): Range {
  return { from: number(query, "from", 0), to: Math.min(view.watermark, number(query, "to", view.watermark)) };
}

/** Free as far as it is known. */
export function freedBy(view: View, block: MockBlock): number {
  return block.freed < view.watermark ? block.freed : Number.POSITIVE_INFINITY;
}

export function stackOf(view: View, block: MockBlock): MockFrame[] {
  return (view.recording.sites[block.site]?.stack ?? []).flatMap((index) => view.recording.frames[index] ?? []);
}

const matches = (expression: RegExp) => (frame: MockFrame) =>
  expression.test(frame.name) || expression.test(frame.file ?? "");

export function makeFilter(view: View, query: Query): (block: MockBlock) => MockFrame[] | undefined {
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
export function peakOf(view: View, range: Range, keep: (block: MockBlock) => unknown = () => true) {
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
export function selected(view: View, query: Query): { blocks: Stacked[]; range: Range; at: number | null } {
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

export const zero = (): Amount => ({ bytes: 0, count: 0 });

export function add(amount: Amount, block: MockBlock): void {
  amount.bytes += block.size;
  amount.count += 1;
}

export function wire(frame: MockFrame, i: number): Frame {
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

export function allocatedInside(view: View, query: Query): { range: Range; blocks: MockBlock[] } {
  const range = rangeOf(view, query);
  const filter = makeFilter(view, query);
  return {
    range,
    blocks: view.recording.blocks.filter(
      (block) => block.allocated >= range.from && block.allocated < range.to && filter(block) !== undefined,
    ),
  };
}

export function lifetimeOf(view: View, block: MockBlock): number {
  return Math.min(freedBy(view, block), view.watermark) - block.allocated;
}
