// @vitest-environment jsdom
import "./setup.ts";
import { fireEvent, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import type { Frame } from "../../src/api/types.ts";
import { patternOf } from "../../src/lib/identity.ts";
import { Stack } from "../../src/ui/stack.tsx";
import { Term } from "../../src/ui/term.tsx";
import { HOSTILE_NAME } from "../mock-api/recording.ts";
import { renderInPage } from "./page.tsx";

const STACK: Frame[] = [
  { function: HOSTILE_NAME, file: "a.c", line: 3, module: "app", inlined: false, library: false, address: "0x1" },
  { function: null, file: null, line: null, module: "libx.so", inlined: false, library: false, address: "0x2" },
];

test("a stack is text, its frames have the menu, filters match the function exactly", () => {
  const { container, went } = renderInPage(<Stack stack={STACK} label="Allocated by" />, { filters: { thread: "1" } });
  expect(container.querySelector("img")).toBeNull();
  expect(screen.getByText("0x2")).toBeTruthy();
  fireEvent.click(screen.getByText(HOSTILE_NAME));
  fireEvent.click(screen.getByRole("menuitem", { name: /^Focus/ }));
  expect(went).toEqual([
    {
      patch: { filters: { thread: "1", focus: patternOf(`${HOSTILE_NAME}@a.c@app`) }, root: undefined },
      options: undefined,
    },
  ]);
});

test("an empty stack says so", () => {
  renderInPage(<Stack stack={[]} label="Freed by" />);
  expect(screen.getByText("No stack was recorded.")).toBeTruthy();
});

test("a definition appears on focus and goes with Escape", () => {
  renderInPage(<Term definition="What it means">Peak</Term>);
  const term = screen.getByRole("button", { name: "Peak" });
  fireEvent.focus(term);
  expect(screen.getByRole("tooltip").textContent).toBe("What it means");
  expect(term.getAttribute("aria-describedby")).toBe(screen.getByRole("tooltip").id);
  fireEvent.keyDown(term, { key: "Escape" });
  expect(screen.queryByRole("tooltip")).toBeNull();
});
