// Contrast of what is written on colours, in both themes.
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { changeColor, distinctHues, frameColor, hash, type Theme } from "../../src/lib/colors.ts";

const TOKENS = readFileSync(new URL("../../src/ui/tokens.css", import.meta.url), "utf8");

function token(theme: Theme, name: string): string {
  const block = TOKENS.slice(TOKENS.indexOf(`:root[data-theme="${theme}"]`));
  const value = new RegExp(`--${name}:\\s*(#[0-9a-f]{6})`).exec(block)?.[1];
  if (!value) throw new Error(`no token ${name}`);
  return value;
}

/** Linear sRGB of `#rrggbb` and of `oklch(l c h)`. */
function linear(color: string): [number, number, number] {
  const hex = /^#(..)(..)(..)$/.exec(color);
  if (hex) {
    return [1, 2, 3].map((i) => {
      const v = Number.parseInt(hex[i] ?? "0", 16) / 255;
      return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    }) as [number, number, number];
  }
  const [l = 0, c = 0, h = 0] = (/oklch\(([^)]+)\)/.exec(color)?.[1] ?? "").split(" ").map(Number);
  const a = c * Math.cos((h * Math.PI) / 180);
  const b = c * Math.sin((h * Math.PI) / 180);
  const [L, M, S] = [
    l + 0.3963377774 * a + 0.2158037573 * b,
    l - 0.1055613458 * a - 0.0638541728 * b,
    l - 0.0894841775 * a - 1.291485548 * b,
  ].map((v) => v ** 3) as [number, number, number];
  const rgb = [
    4.0767416621 * L - 3.3077115913 * M + 0.2309699292 * S,
    -1.2684380046 * L + 2.6097574011 * M - 0.3413193965 * S,
    -0.0041960863 * L - 0.7034186147 * M + 1.707614701 * S,
  ];
  return rgb.map((v) => Math.min(1, Math.max(0, v))) as [number, number, number];
}

function contrast(one: string, other: string): number {
  const [a, b] = [one, other].map((color) => {
    const [r, g, bl] = linear(color);
    return 0.2126 * r + 0.7152 * g + 0.0722 * bl;
  }) as [number, number];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}

test.each(["light", "dark"] as const)("labels of frames can be read in the %s theme", (theme) => {
  const ink = token(theme, "frame-ink");
  const modules = ["app", "libc.so.6", null, ...Array.from({ length: 60 }, (_, i) => `lib${i}.so`)];
  for (const module of modules) {
    for (let i = 0; i < 12; i += 1)
      expect(contrast(ink, frameColor(module, `f${i}`, theme)), `${module}`).toBeGreaterThanOrEqual(4.5);
  }
  for (const change of [-100, -30, -1, 0, 1, 30, 100]) {
    expect(contrast(ink, changeColor(change, 100, theme)), `${change}`).toBeGreaterThanOrEqual(4.5);
  }
});

test.each(["light", "dark"] as const)("text can be read in the %s theme", (theme) => {
  for (const paper of ["page", "surface", "raised", "hover"]) {
    for (const ink of ["text", "text-muted", "accent", "good", "warn", "bad", "match"]) {
      expect(contrast(token(theme, ink), token(theme, paper)), `${ink} on ${paper}`).toBeGreaterThanOrEqual(4.5);
    }
  }
  expect(contrast(token(theme, "accent"), token(theme, "accent-soft"))).toBeGreaterThanOrEqual(4.5);
  expect(contrast(token(theme, "on-accent"), token(theme, "accent"))).toBeGreaterThanOrEqual(4.5);
});

test("no module is brown or olive in the dark theme", () => {
  for (let i = 0; i < 60; i += 1) {
    const hue = Number(/ ([\d.]+)\)$/.exec(frameColor(`lib${i}.so`, "f", "dark"))?.[1]);
    expect(hue > 24 && hue < 130, `lib${i}.so: ${hue}`).toBe(false);
  }
});

test("a module has the same colour in every session", () => {
  expect(hash("libc.so.6")).toBe(hash("libc.so.6"));
  expect(frameColor("server", "main", "light")).toBe("oklch(0.863 0.085 150)");
});

test.each(["light", "dark"] as const)("the modules of one picture are told apart in the %s theme", (theme) => {
  const names = ["python3.11", "libpython3.11.so.1.0", "redis-check-rdb", "libcrypto.so.3", "libc.so.6", "a", "b", "c"];
  const usual = new Map<string, number>();
  const hues = distinctHues(names, theme, usual);
  // The system's own has no hue.
  expect(hues.has("libc.so.6")).toBe(false);
  expect(new Set(hues.values()).size).toBe(names.length - 1);
  // The largest has the colour that it has everywhere; all the others keep theirs when their sizes change.
  expect(frameColor("python3.11", "f", theme, hues.get("python3.11"))).toBe(frameColor("python3.11", "f", theme));
  expect(new Map(distinctHues([...names].reverse(), theme, usual))).toEqual(hues);
  const hueOf = (name: string) => Number(/ ([\d.]+)\)$/.exec(frameColor(name, "f", theme, hues.get(name)))?.[1]);
  const [first = 0, second = 0] = names.slice(0, 2).map(hueOf);
  expect(Math.abs(first - second)).toBeGreaterThanOrEqual(32);
});
