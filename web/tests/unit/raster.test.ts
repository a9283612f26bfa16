import { expect, test } from "vitest";
import { pixelOf } from "../../src/ui/flame/raster.ts";

// CSS Color 4 names these as the values of its named colours.
test.each([
  ["oklch(1 0 0)", [255, 255, 255]],
  ["oklch(0 0 0)", [0, 0, 0]],
  ["oklch(0.62796 0.25768 29.234)", [255, 0, 0]],
  ["oklch(0.51975 0.17686 142.495)", [0, 128, 0]],
  ["oklch(0.45201 0.31321 264.052)", [0, 0, 255]],
  // Outside of sRGB: each channel is clipped.
  ["oklch(0.7 0.4 145)", [0, 210, 0]],
])("%s is the pixel that a canvas draws", (color, channels) => {
  const pixel = pixelOf(color);
  const drawn = [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255, pixel >>> 24];
  expect(
    drawn.slice(0, 3).every((byte, i) => Math.abs(byte - (channels[i] ?? 0)) <= 1),
    String(drawn),
  ).toBe(true);
  expect(drawn[3]).toBe(255);
});

test("what is no colour of a frame has no pixel", () => {
  expect(pixelOf("transparent")).toBe(0);
});
