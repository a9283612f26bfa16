// Numbers as people read them: bytes in binary units, times, counts. No locale surprises: always a point and commas.
// The commands print the same: tests/unit/number-formats.json has the cases that both are held to.

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] as const;
const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** Three significant digits, but never an exponent and never more than two decimals. */
function threeDigits(value: number): string {
  const magnitude = Math.abs(value);
  if (magnitude >= 99.95) return value.toFixed(0);
  if (magnitude >= 9.995) return value.toFixed(1);
  return value.toFixed(2);
}

/** `1536` → `1.50 KiB`. */
export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  // Below a KiB every byte; above it three digits, so that 1000 KiB are 0.98 MiB.
  while (Math.abs(value) >= (unit === 0 ? 1023.5 : 999.5) && unit < BYTE_UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${Math.round(value)} B` : `${threeDigits(value)} ${BYTE_UNITS[unit] ?? ""}`;
}

/** The same of a number of bytes that is a power of two, for marks that stand close together: `64 KiB`. */
export function formatPowerOfTwo(bytes: number): string {
  return formatBytes(bytes).replace(/\.0+ /, " ");
}

/** `1234567` → `1,234,567`. */
export function formatCount(count: number): string {
  return grouped.format(count);
}

/** `1234567` → `1.23 M`; up to 9,999 every digit. */
export function formatShortCount(count: number): string {
  const magnitude = Math.abs(count);
  if (magnitude < 10_000)
    return Number.isInteger(count) || magnitude >= 999.5 ? grouped.format(count) : threeDigits(count);
  if (magnitude < 999_500) return `${threeDigits(count / 1e3)} k`;
  if (magnitude < 999_500_000) return `${threeDigits(count / 1e6)} M`;
  return `${threeDigits(count / 1e9)} G`;
}

/** A value of the given unit, short. */
export function formatValue(value: number, unit: "bytes" | "count"): string {
  return unit === "bytes" ? formatBytes(value) : formatShortCount(value);
}

/** A value of the given unit with every digit: `12,345 bytes`, `1 block`. */
export function formatExact(value: number, unit: "bytes" | "count"): string {
  const word = unit === "bytes" ? "byte" : "block";
  return `${grouped.format(value)} ${word}${Math.abs(value) === 1 ? "" : "s"}`;
}

/** `+1.00 KiB`, `−1.00 KiB`, `0 B`. */
export function formatSigned(value: number, unit: "bytes" | "count"): string {
  if (value > 0) return `+${formatValue(value, unit)}`;
  if (value < 0) return `−${formatValue(-value, unit)}`;
  return formatValue(0, unit);
}

/** `0.1234` → `12.3%`. */
export function formatPercent(fraction: number): string {
  if (!Number.isFinite(fraction)) return "–";
  const percent = fraction * 100;
  if (percent === 0) return "0%";
  if (Math.abs(percent) < 0.01) return percent < 0 ? "> −0.01%" : "< 0.01%";
  return `${Math.abs(percent) >= 99.95 ? percent.toFixed(0) : threeDigits(percent)}%`;
}

/** How many times as much: `2.00 ×`, `12.5 ×`. */
export function formatTimes(factor: number): string {
  return Number.isFinite(factor) ? `${threeDigits(factor)} ×` : "–";
}

/** A length of time: `1.23 ms`, `12.3 s`, `2 min 05 s`, `3 h 20 min`. */
export function formatDuration(ns: number): string {
  const magnitude = Math.abs(ns);
  if (magnitude < 999.5) return `${ns.toFixed(0)} ns`;
  if (magnitude < 999_500) return `${threeDigits(ns / 1e3)} µs`;
  if (magnitude < 999_500_000) return `${threeDigits(ns / 1e6)} ms`;
  if (magnitude < 100e9) return `${threeDigits(ns / 1e9)} s`;
  const seconds = Math.floor(ns / 1e9);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
  const minutes = Math.floor(seconds / 60);
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

/**
 * An instant since the start, with as many decimals as tell apart instants `resolutionNs` apart.
 * `scaleNs` chooses the unit, so that the marks of an axis share one.
 */
export function formatInstant(ns: number, resolutionNs = 1e6, scaleNs = ns): string {
  const [unit, size] = scaleNs >= 1e9 || scaleNs === 0 ? ["s", 1e9] : scaleNs >= 1e6 ? ["ms", 1e6] : ["µs", 1e3];
  // Below a second three digits are kept: nobody asks for a resolution that hides the value.
  const resolution = Math.max(1, size === 1e9 ? resolutionNs : Math.min(resolutionNs, scaleNs / 100));
  const decimals = Math.min(9, Math.max(0, Math.ceil(-Math.log10(resolution / size) - 1e-9)));
  return `${(ns / size).toFixed(decimals)} ${unit}`;
}

/** `2026-07-30 08:15:00 UTC` for RFC 3339. */
export function formatStart(rfc3339: string): string {
  return rfc3339.replace("T", " ").replace(/\.\d+/, "").replace("Z", " UTC");
}

/** `1234.5` a second → `1,235 /s`, `1.23 M/s`. */
export function formatRate(perSecond: number): string {
  return `${formatShortCount(Math.abs(perSecond) >= 100 ? Math.round(perSecond) : perSecond)}/s`;
}

/** `3 threads`, `1 thread`. */
export function plural(count: number, noun: string, many = `${noun}s`): string {
  return `${formatCount(count)} ${count === 1 ? noun : many}`;
}

/** A sentence: begins with a capital letter, ends with a point. */
export function sentence(text: string): string {
  const trimmed = text.trim();
  if (trimmed === "") return "";
  const ended = /[.!?…]$/.test(trimmed) ? trimmed : `${trimmed}.`;
  return ended.charAt(0).toUpperCase() + ended.slice(1);
}
