// Colours that mean something: one hue a module, the same in every session where hues suffice; a slight shade a function.

export type Theme = "light" | "dark";

/** Hues that stay apart for the common kinds of colour blindness when lightness varies as well. */
const HUES = {
  light: [255, 60, 150, 320, 200, 95, 285, 20, 175, 345],
  // As dark as light letters need them, hues from orange to yellow-green are brown and olive: there are none.
  dark: [250, 10, 150, 320, 195, 222, 285, 342, 172, 268],
} as const;

/** FNV-1a, 32 bits. */
export function hash(text: string): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i += 1) {
    h ^= text.charCodeAt(i);
    h = Math.imul(h, 0x01000193);
  }
  return h >>> 0;
}

/** Libraries of the system recede, so that the program's own code stands out. */
export function isSystemModule(module: string): boolean {
  return /^(ld-|libc\.|libc-|libpthread|libm\.|libstdc\+\+|libgcc|libdl|librt|linux-vdso|\[vdso)/.test(module);
}

/** Degrees between hues that are told apart at a glance. */
const APART = 32;

/**
 * The place of each group's hue, the largest group first: its own one if no larger group has one like it, else the one
 * that is farthest from theirs. `usual`: what groups had in the pictures before, so that a zoom changes no colour.
 */
export function distinctHues(groups: readonly string[], theme: Theme, usual: Map<string, number>): Map<string, number> {
  const hues = HUES[theme];
  const given = new Map<string, number>();
  const distance = (one: number, other: number) => {
    const turn = Math.abs((hues[one] ?? 0) - (hues[other] ?? 0));
    return Math.min(turn, 360 - turn);
  };
  const room = (place: number) => {
    let least = 360;
    for (const taken of given.values()) least = Math.min(least, distance(place, taken));
    return least;
  };
  for (const group of groups) {
    if (isSystemModule(group)) continue;
    const known = usual.get(group);
    let place = known ?? hash(group) % hues.length;
    if (room(place) < (known === undefined ? APART : 1)) {
      for (let other = 0; other < hues.length; other += 1) if (room(other) > room(place)) place = other;
    }
    given.set(group, place);
    usual.set(group, place);
  }
  return given;
}

/** The fill of a frame; `place`: of its hue, if others of the picture have the hue that its module has by itself. */
export function frameColor(module: string | null | undefined, name: string, theme: Theme, place?: number): string {
  const shade = ((hash(name) % 7) - 3) * 0.011;
  if (!module) return theme === "light" ? grey(0.86 + shade) : grey(0.42 + shade);
  const hues = HUES[theme];
  const hue = hues[place ?? hash(module) % hues.length] ?? 255;
  const chroma = isSystemModule(module) ? 0.018 : theme === "light" ? 0.085 : 0.12;
  const lightness = theme === "light" ? 0.83 + shade : 0.48 + shade;
  return `oklch(${lightness.toFixed(3)} ${chroma} ${hue})`;
}

function grey(lightness: number): string {
  return `oklch(${lightness.toFixed(3)} 0 0)`;
}

/** What was folded away, and the root. */
export function restColor(theme: Theme): string {
  return theme === "light" ? "oklch(0.93 0.003 260)" : "oklch(0.32 0.005 260)";
}

/** Red grew, blue shrank; the stronger, the larger its part of the largest change. */
export function changeColor(change: number, largest: number, theme: Theme): string {
  if (change === 0 || largest <= 0) return grey(theme === "light" ? 0.9 : 0.35);
  const strength = Math.sqrt(Math.min(1, Math.abs(change) / largest));
  const hue = change > 0 ? 30 : 250;
  const lightness = theme === "light" ? 0.92 - 0.2 * strength : 0.36 + 0.1 * strength;
  return `oklch(${lightness.toFixed(3)} ${(0.02 + 0.12 * strength).toFixed(3)} ${hue})`;
}
