// Sizes and lifetimes of a synthetic recording. Test fixture.
import type { Histogram, Lifetimes, Sizes } from "../../src/api/types.ts";
import type { MockBlock } from "./recording.ts";
import { allocatedInside, exactness, freedBy, lifetimeOf, type Query, type View } from "./shared.ts";

export function histogram(
  view: View,
  blocks: MockBlock[],
  lower: number[],
  of: (block: MockBlock) => number,
): Histogram {
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

export const SIZE_CLASSES = [
  0,
  ...Array.from({ length: 88 }, (_, i) => Math.floor(2 ** (i >> 2) * (1 + (i & 3) / 4))).filter(
    (value, i, all) => value !== all[i - 1],
  ),
];

export const LIFE_CLASSES = [0, ...Array.from({ length: 74 }, (_, i) => Math.floor(2 ** (i / 2)))].filter(
  (value, i, all) => value !== all[i - 1],
);

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
