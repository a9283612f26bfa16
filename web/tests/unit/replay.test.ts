// Rows of a replay: ranges, order, what failed, and the words about them.
import { expect, test } from "vitest";
import type { KeptReplay, ReplayRow } from "../../src/api/types.ts";
import {
  boundsOf,
  formatBounds,
  hasFigures,
  inOrderOfPeaks,
  replayError,
  replayVerdict,
  settingsOf,
} from "../../src/lib/replay.ts";

const MIB = 1 << 20;

const row = (allocator: string, peak: [number, number], more: Partial<ReplayRow> = {}): ReplayRow => ({
  allocator,
  settings: {},
  peak_bytes: peak,
  end_bytes: peak,
  cpu_ns: 1,
  command: "./app",
  ...more,
});

const kept = (rows: ReplayRow[], more: Partial<KeptReplay> = {}): KeptReplay => ({
  schema: "heaptrace.kept_replay/1",
  checked: true,
  smaller: null,
  command: "heaptrace replay a.dat",
  replay: {
    schema: "heaptrace.replay/1",
    recorded: { allocator: "glibc 2.36", peak_bytes: 100 * MIB, other_bytes: 0 },
    self_check: { peak_bytes: 99 * MIB, error: -0.01 },
    rows,
  },
  ...more,
});

test("ranges of less than a hundredth are one figure", () => {
  expect(formatBounds([175 * MIB, 187 * MIB])).toBe("175 MiB – 187 MiB");
  expect(formatBounds([1000 * 1024, 1005 * 1024])).toBe("0.98 MiB");
  expect(formatBounds([7])).toBe("7 B");
  // A damaged file may have them the wrong way round, or none.
  expect(boundsOf([9, 4])).toEqual({ low: 4, high: 4 });
  expect(boundsOf([])).toEqual({ low: 0, high: 0 });
});

test("the smallest peak comes first, what has no figures last", () => {
  const broken = row("fake", [0, 0], { failed: "it cannot be preloaded" });
  const partly = row("tight", [5, 8], { failed: "3 allocations failed" });
  const rows = [broken, row("large", [1, 90]), partly, row("small", [6, 7])];
  expect(inOrderOfPeaks(rows).map((one) => one.allocator)).toEqual(["small", "tight", "large", "fake"]);
  expect(rows.map(hasFigures)).toEqual([false, true, true, true]);
  expect(rows[0]).toBe(broken);
});

test("the verdict has the words of the command", () => {
  const rows = [
    row("jemalloc 5.3.0", [50 * MIB, 53 * MIB], { settings: { dirty_decay_ms: "0", muzzy_decay_ms: "0" } }),
    row("mimalloc 2.0.9", [95 * MIB, 95 * MIB]),
  ];
  expect(rows.map(settingsOf)).toEqual(["dirty_decay_ms=0 muzzy_decay_ms=0", ""]);
  expect(replayVerdict(kept(rows, { smaller: 0 }))).toBe(
    "jemalloc 5.3.0 with dirty_decay_ms=0 muzzy_decay_ms=0 would hold 53.0 MiB at the peak instead of 100 MiB (glibc 2.36)",
  );
  expect(replayVerdict(kept(rows))).toBe("None of 2 replayed allocators would hold a tenth less than glibc 2.36 does");
  expect(replayVerdict(kept(rows, { checked: false }))).toContain("figures without a verdict");
  expect(replayVerdict(kept(rows, { replay: null }))).toBeUndefined();
  expect([replayError(kept(rows)), replayError(kept(rows, { replay: null }))]).toEqual(["1.00%", undefined]);
});
