import { describe, expect, test } from "vitest";
import { canGlide, covered, transformOf } from "../../src/ui/flame/glide.ts";
import type { FlameView } from "../../src/ui/flame/layout.ts";

/** Where a place of the root is on the screen: in a picture that a transform moves. */
function onScreen(place: number, picture: FlameView, transform: string, width: number): number {
  const [, x = 0, scale = 0] = (/^translateX\(([-\d.e+]+)px\) scaleX\(([-\d.e+]+)\)$/.exec(transform) ?? []).map(
    Number,
  );
  const inPicture = ((place - picture.left) / (picture.right - picture.left)) * width;
  return x + inPicture * scale;
}

describe("a picture on its way", () => {
  const whole = { left: 0, right: 1 };
  const part = { left: 0.25, right: 0.5 };

  test("shows a frame where the view has it, whatever the picture shows", () => {
    const view = { left: 0.2, right: 0.7 };
    for (const picture of [whole, part, view])
      expect(onScreen(0.3, picture, transformOf(picture, view, 1000), 1000)).toBeCloseTo(200, 6);
  });

  test("stays as it is where the view is what it shows", () => {
    expect(transformOf(part, part, 800)).toBe("translateX(0px) scaleX(1)");
  });

  test("covers a part of what is seen", () => {
    expect(covered(whole, part)).toBe(1);
    expect(covered(part, whole)).toBe(0.25);
    expect(covered(part, { left: 0.6, right: 0.8 })).toBe(0);
  });

  test("is not stretched beyond what can be told apart", () => {
    expect(canGlide(whole, part)).toBe(true);
    expect(canGlide(part, whole)).toBe(true);
    expect(canGlide(whole, { left: 0, right: 1e-6 })).toBe(false);
    expect(canGlide({ left: 0, right: 1e-6 }, whole)).toBe(false);
  });
});
