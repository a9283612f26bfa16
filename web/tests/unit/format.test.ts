import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatExact,
  formatInstant,
  formatPercent,
  formatPowerOfTwo,
  formatRate,
  formatShortCount,
  formatSigned,
  plural,
  sentence,
} from "../../src/lib/format.ts";
import cases from "./number-formats.json" with { type: "json" };

test("marks of powers of two are short", () => {
  expect([1, 512, 1024, 65_536, 1 << 20].map(formatPowerOfTwo)).toEqual(["1 B", "512 B", "1 KiB", "64 KiB", "1 MiB"]);
});

// The commands are held to the same list, in server/api/src/units.rs.
test("bytes, parts, counts and durations are written as the commands write them", () => {
  const texts = (list: (string | number)[][], format: (value: number) => string) =>
    list.map(([value]) => [value, format(Number(value))]);
  expect(texts(cases.bytes, formatBytes)).toEqual(cases.bytes);
  expect(texts(cases.millionths, (millionths) => formatPercent(millionths / 1e6))).toEqual(cases.millionths);
  expect(texts(cases.counts, formatCount)).toEqual(cases.counts);
  expect(texts(cases.durations, formatDuration)).toEqual(cases.durations);
});

test("no view writes numbers by means of its own", () => {
  const own = sources("src").filter((file) => !/lib\/(format|time|colors|sorting)\.ts$|schema\.ts$/.test(file));
  expect(own.length).toBeGreaterThan(100);
  // Coordinates of drawings are no text.
  const drawings = /sparkline|picture|minimap/;
  const found = own.filter((file) => {
    const text = readFileSync(file, "utf8");
    return /toLocaleString|Intl\.|\d %[`"<]/.test(text) || (!drawings.test(file) && /\.toFixed\(/.test(text));
  });
  expect(found).toEqual([]);
});

/** Files below a folder. */
function sources(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name));
}

test.each([
  [0, "0 B"],
  [1, "1 B"],
  [1023, "1023 B"],
  [1024, "1.00 KiB"],
  [1536, "1.50 KiB"],
  [10_240, "10.0 KiB"],
  [1024 * 1023.7, "1.00 MiB"],
  [123_456_789, "118 MiB"],
  [1024 ** 4 * 3, "3.00 TiB"],
  [-2048, "-2.00 KiB"],
])("bytes %d are %s", (bytes, text) => expect(formatBytes(bytes)).toBe(text));

test.each([
  [0, "0 ns"],
  [999, "999 ns"],
  [1500, "1.50 µs"],
  [1_234_567, "1.23 ms"],
  [12_300_000_000, "12.3 s"],
  [125_000_000_000, "2 min 05 s"],
  [12_000_000_000_000, "3 h 20 min"],
])("a duration of %d ns is %s", (ns, text) => expect(formatDuration(ns)).toBe(text));

test.each([
  [0, 1e6, "0.000 s"],
  [7_370_123_456, 1e6, "7.370 s"],
  [7_370_123_456, 1e8, "7.4 s"],
  [7_370_123_456, 1, "7.370123456 s"],
  [10_300_000, 1e6, "10.3 ms"],
  [1500, 1e6, "1.50 µs"],
])("the instant %d, to %d ns, is %s", (ns, step, text) => expect(formatInstant(ns, step)).toBe(text));

test("marks of an axis share a unit", () => {
  expect([0, 5e6, 10e6].map((ns) => formatInstant(ns, 5e6, 10e6))).toEqual(["0.0 ms", "5.0 ms", "10.0 ms"]);
});

test("counts, rates and parts", () => {
  expect(formatCount(1_234_567)).toBe("1,234,567");
  expect(formatShortCount(9_999)).toBe("9,999");
  expect(formatShortCount(6_700.4)).toBe("6,700");
  expect(formatShortCount(26_712)).toBe("26.7 k");
  expect(formatShortCount(999_600)).toBe("1.00 M");
  expect(formatRate(2671.2)).toBe("2,671/s");
  expect(formatPercent(0.1234)).toBe("12.3%");
  expect(formatPercent(0.00001)).toBe("< 0.01%");
  expect(formatPercent(1)).toBe("100%");
  expect(formatPercent(Number.NaN)).toBe("–");
});

test("signs and exact amounts", () => {
  expect(formatSigned(2048, "bytes")).toBe("+2.00 KiB");
  expect(formatSigned(-3, "count")).toBe("−3");
  expect(formatSigned(0, "bytes")).toBe("0 B");
  expect(formatExact(1, "bytes")).toBe("1 byte");
  expect(formatExact(12_345, "count")).toBe("12,345 blocks");
  expect(plural(1, "thread")).toBe("1 thread");
  expect(plural(2, "thread")).toBe("2 threads");
});

test("sentences", () => {
  expect(sentence("live bytes rose")).toBe("Live bytes rose.");
  expect(sentence("Done.")).toBe("Done.");
  expect(sentence("")).toBe("");
});
