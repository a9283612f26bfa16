import { expect, test } from "vitest";
import {
  columnAt,
  gapsBetween,
  keyChange,
  resolution,
  roomsOf,
  toInstant,
  toPixel,
  toSpan,
  wheelChange,
  windowText,
} from "../../src/features/timeline/layout.ts";
import { buildTracks } from "../../src/features/timeline/tracks.ts";
import { instantLabels, roundSplits, tickResolution, trimZeros } from "../../src/lib/ticks.ts";
import { typicalRecording } from "../mock-api/recording.ts";
import { timeline } from "../mock-api/timeline.ts";

const SCALE = { shown: { from: 1000, to: 2000 }, left: 60, width: 500 };

test("pixels and instants", () => {
  expect(toPixel(SCALE, 1500)).toBe(310);
  expect(toInstant(SCALE, 310)).toBe(1500);
  expect(toInstant(SCALE, 0)).toBe(1000);
  expect(toInstant(SCALE, 9999)).toBe(2000);
  expect(resolution(SCALE)).toBe(2);
});

test("names of marks do not stand on one another", () => {
  const at = (t_ns: number, label = "requests done") => ({ t_ns, label });
  // 50 pixels are 100 ns here; a long name gets what there is before the next.
  const [first, second, third] = roomsOf(SCALE, [at(1000), at(1100), at(1110)]);
  expect([first, second]).toEqual([50, 5]);
  expect(third).toBeCloseTo(13 * 6.5 + 9);
  // At the right edge they stand on the left of their line, where the one before may be.
  const [before, last] = roomsOf(SCALE, [at(1800, "matrices"), at(1980, "end")]);
  expect(before).toBeCloseTo(8 * 6.5 + 9);
  expect(last).toBeCloseTo(3 * 6.5 + 9);
  expect(roomsOf(SCALE, [at(1800), at(1980, "the end of it")])[1]).toBeLessThan(10);
});

test("only the visible part of a window is drawn", () => {
  expect(toSpan(SCALE, { from: 1500, to: 9000 })).toEqual({ left: 310, width: 250 });
  expect(toSpan(SCALE, { from: 3000, to: 9000 })).toBeUndefined();
});

test("what no capture covers was not recorded", () => {
  const captures = [
    { from_ns: 500, to_ns: 800 },
    { from_ns: 100, to_ns: 300 },
  ];
  expect(gapsBetween(captures, 1000)).toEqual([
    { from: 0, to: 100 },
    { from: 300, to: 500 },
    { from: 800, to: 1000 },
  ]);
  expect(gapsBetween([{ from_ns: 0, to_ns: 1000 }], 1000)).toEqual([]);
  expect(gapsBetween([], 1000)).toEqual([]);
});

test("keys", () => {
  const state = { shown: { from: 0, to: 1000 }, window: { from: 100, to: 200 }, at: undefined, endNs: 1000 };
  expect(keyChange("ArrowRight", false, state)).toEqual({ window: { from: 120, to: 220 } });
  expect(keyChange("ArrowRight", true, state)).toEqual({ window: { from: 100, to: 220 }, at: undefined });
  expect(keyChange("ArrowLeft", false, { ...state, window: undefined, at: 10 })).toEqual({ at: 0 });
  expect(keyChange("Escape", false, state)).toEqual({ window: undefined, at: undefined });
  expect(keyChange("Escape", false, { ...state, window: undefined })).toBeUndefined();
  expect(keyChange("0", false, state)).toEqual({ shown: undefined });
  expect(keyChange("x", false, state)).toBeUndefined();
  // What is compared goes where the choice is; the other instant stays, or is an end of the recording.
  expect(keyChange("A", true, state)).toEqual({ a: 100, b: state.endNs });
  expect(keyChange("B", true, { ...state, a: 7 })).toEqual({ a: 7, b: 200 });
  expect(keyChange("A", true, { ...state, at: 150, b: 900 })).toEqual({ a: 150, b: 900 });
  const part = { ...state, shown: { from: 100, to: 200 }, endNs: 1000 };
  expect(keyChange("PageDown", false, part)).toEqual({ shown: { from: 180, to: 280 } });
  expect(keyChange("PageUp", false, part)).toEqual({ shown: { from: 20, to: 120 } });
});

test("the wheel zooms about the pointer, and pans sideways", () => {
  const shown = { from: 0, to: 1_000_000 };
  const closer = wheelChange(shown, 500_000, 0, -100, 1_000_000);
  expect(closer.from).toBeGreaterThan(0);
  expect((closer.from + closer.to) / 2).toBeCloseTo(500_000, -1);
  expect(wheelChange(closer, 500_000, 80, 0, 1_000_000).from).toBeGreaterThan(closer.from);
});

test("texts of windows", () => {
  expect(windowText({ from: 1e9, to: 2.5e9 })).toBe("1.00 s – 2.50 s");
  expect(windowText({ from: 0, to: 20e6 })).toBe("0.0 ms – 20.0 ms");
});

test("columns and tracks", () => {
  const recording = typicalRecording(2);
  const view = { recording, watermark: recording.durationNs, running: false };
  const document = timeline(
    view,
    new Map([
      ["series", "live_bytes,occupied_bytes,rss,alloc_rate,free_rate,thread_rate"],
      ["points", "100"],
    ]),
  );
  expect(columnAt(document, 0)).toBe(0);
  expect(columnAt(document, document.to_ns)).toBe(document.t_ns.length - 1);
  const middle = columnAt(document, 1e9);
  expect(document.t_ns[middle]).toBeLessThanOrEqual(1e9);
  expect(document.t_ns[middle + 1] ?? Number.POSITIVE_INFINITY).toBeGreaterThan(1e9);
  const tracks = buildTracks(document, 800);
  expect(tracks.map((track) => track.id)).toEqual([
    "bytes",
    "rss",
    "rate",
    "thread 1",
    "thread 2",
    "thread 3",
    "thread 4",
  ]);
  const resident = tracks.find((track) => track.id === "rss");
  expect(resident?.legend.map((item) => item.label)).toEqual(["RSS", "live pages"]);
  expect(resident?.curves).toHaveLength(2);
  for (const track of tracks) for (const curve of track.curves) expect(curve.values).toHaveLength(track.t.length);
});

test("marks of the value axis are round", () => {
  expect(roundSplits(0, 35 * 1048576, 1024, 4)).toEqual([0, 10, 20, 30].map((n) => n * 1048576));
  expect(roundSplits(0, 1, 1024, 4)).toEqual([0, 1]);
  expect(roundSplits(0, 77_000, 1000, 2)).toEqual([0, 50_000]);
  // Halves and quarters of the next unit, not a thousand of the one below.
  expect(roundSplits(0, 5.2 * 1048576, 1024, 6)).toEqual([0, 1, 2, 3, 4, 5].map((n) => n * 1048576));
  expect(roundSplits(0, 2 * 1048576, 1024, 6)).toEqual([0, 0.5, 1, 1.5, 2].map((n) => n * 1048576));
  // However low a chart is, one mark tells its scale.
  expect(roundSplits(0, 1_900_000, 1000, 1)).toEqual([0, 1_000_000]);
  expect(roundSplits(0, 0, 1000, 1)).toEqual([0]);
});

test("marks are written as finely as they lie, and no finer", () => {
  expect([0.25e9, 0.5e9, 1e9, 2e6].map(tickResolution)).toEqual([1e7, 1e8, 1e9, 1e6]);
  expect(["40.0 MiB", "2.50 M", "1.00 k", "100 B", "0.20"].map(trimZeros)).toEqual([
    "40 MiB",
    "2.5 M",
    "1 k",
    "100 B",
    "0.2",
  ]);
});

test("the only mark of a time axis is written as finely as the axis steps", () => {
  expect(instantLabels([1.00000006], 1)).toEqual(["1 s"]);
  expect(instantLabels([0.5, 1, 1.5], 0.5)).toEqual(["0.5 s", "1.0 s", "1.5 s"]);
});
