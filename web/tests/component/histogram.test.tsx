// @vitest-environment jsdom
import "./setup.ts";
import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { formatBytes } from "../../src/lib/format.ts";
import { Histogram } from "../../src/ui/histogram.tsx";

const data = (count: number[]) => ({
  lower: [64, 128, 192],
  count,
  bytes: count.map((one) => one * 150),
  live_count: count,
});

test("blocks that are all alike are words, not one bar", () => {
  const { container, rerender } = render(
    <Histogram data={data([0, 2000, 0])} label="Sizes" formatClass={(lower) => formatBytes(lower)} />,
  );
  expect(container.querySelector(".histogram-bars")).toBeNull();
  expect(container.textContent).toBe("Sizes of 2,000 blocks128 B to 192 B, 2,000 never freed");
  rerender(<Histogram data={data([0, 2000, 1])} label="Sizes" formatClass={(lower) => formatBytes(lower)} />);
  expect(screen.getByRole("img").children.length).toBe(2);
});
