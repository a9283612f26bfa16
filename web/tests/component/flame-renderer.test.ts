// @vitest-environment jsdom
// The traps of d3-flame-graph that the renderer is there for.
import "./setup.ts";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { buildTree, type FlameNode, nodeName } from "../../src/lib/flame-tree.ts";
import { makeD3Renderer, ROW_HEIGHT } from "../../src/ui/flame/d3-renderer.ts";
import type { FlameHandlers, FlameLook, FlameMarks, FlameRenderer } from "../../src/ui/flame/renderer.ts";
import { HOSTILE_NAME, tinyRecording, typicalRecording } from "../mock-api/recording.ts";
import { flamegraph } from "../mock-api/trees.ts";

const LOOK: FlameLook = { downwards: true, color: () => "red", label: nodeName, description: nodeName };
const NONE: FlameMarks = { matches: undefined, selectedName: undefined, activeRow: undefined };

let host: HTMLDivElement;
let renderer: FlameRenderer;
let handlers: { [K in "onZoom" | "onHover" | "onMenu"]: ReturnType<typeof vi.fn<FlameHandlers[K]>> };

beforeEach(() => {
  host = document.createElement("div");
  document.body.append(host);
  handlers = { onZoom: vi.fn(), onHover: vi.fn(), onMenu: vi.fn() };
  renderer = makeD3Renderer(host, "flame", 1200, handlers);
});

afterEach(() => {
  renderer.destroy();
  host.remove();
});

function tree(query: Record<string, string>, seconds = 2): FlameNode {
  const recording = typicalRecording(seconds);
  const built = buildTree(
    flamegraph({ recording, watermark: recording.durationNs, running: false }, new Map(Object.entries(query))),
  );
  if (!built) throw new Error("no tree");
  return built;
}

function show(root: FlameNode, marks: FlameMarks = NONE): void {
  renderer.render(root, root, LOOK, marks);
}

function labels(): Set<string> {
  return new Set([...host.querySelectorAll("g.frame")].map((g) => g.getAttribute("name") ?? ""));
}

test("names survive a second and a third tree", () => {
  for (const metric of ["live", "allocated", "peak"]) {
    show(tree({ metric }));
    expect(labels().has("main")).toBe(true);
    expect(labels().has("")).toBe(false);
  }
});

test("widths and labels are there at once, without waiting for transitions", () => {
  for (const metric of ["live", "allocated"]) {
    const given = tree({ metric });
    show(given, NONE);
    const width = (node: FlameNode | undefined) =>
      Number(
        renderer
          .element(node?.row ?? -1)
          ?.querySelector("rect")
          ?.getAttribute("width"),
      );
    expect(width(given)).toBe(1200);
    const [first] = given.children;
    expect(width(first)).toBeCloseTo((1200 * (first?.weight ?? 0)) / given.weight, 3);
    expect(renderer.element(first?.row ?? -1)?.querySelector("div")?.textContent).toBe(first && nodeName(first));
  }
});

test("a deeper tree makes the graph higher", () => {
  show(tree({ show: "^main$" }));
  const before = Number(host.querySelector("svg")?.getAttribute("height"));
  show(tree({}));
  expect(Number(host.querySelector("svg")?.getAttribute("height"))).toBeGreaterThan(before + 3 * ROW_HEIGHT);
});

test("the tree that was given is not changed", () => {
  const given = tree({});
  const before = JSON.stringify(given, (key, value) => (key === "parent" ? undefined : value));
  show(given, NONE);
  (host.querySelectorAll("g.frame")[3] as SVGElement).dispatchEvent(new MouseEvent("click", { bubbles: true }));
  expect(JSON.stringify(given, (key, value) => (key === "parent" ? undefined : value))).toBe(before);
});

test("hostile names are text", () => {
  show(tree({}));
  expect(labels().has(HOSTILE_NAME)).toBe(true);
  expect(host.querySelector("img, script, b")).toBeNull();
});

test("frames have roles, levels and spoken names; marks are attributes", async () => {
  const given = tree({});
  const [first] = given.children;
  show(given, { matches: new Set([first?.row ?? -1]), selectedName: "main", activeRow: first?.row });
  const element = renderer.element(first?.row ?? -1);
  await vi.waitFor(() => expect(element?.getAttribute("role")).toBe("treeitem"));
  expect(element?.getAttribute("aria-level")).toBe("2");
  expect(element?.getAttribute("aria-label")).toBe(first && nodeName(first));
  expect(element?.hasAttribute("data-match")).toBe(true);
  expect(renderer.element(given.row)?.hasAttribute("data-dim")).toBe(true);
  renderer.mark(NONE);
  expect(element?.hasAttribute("data-match")).toBe(false);
  expect(renderer.element(given.row)?.hasAttribute("data-dim")).toBe(false);
});

test("a click, a hover and a menu name the node", () => {
  const given = tree({});
  const child = given.children[0];
  show(given, NONE);
  const element = renderer.element(child?.row ?? -1);
  element?.dispatchEvent(new MouseEvent("contextmenu", { bubbles: true, clientX: 5, clientY: 6 }));
  expect(handlers.onMenu).toHaveBeenCalledWith(child, { x: 5, y: 6 });
  element?.dispatchEvent(new MouseEvent("mouseover", { bubbles: true, clientX: 1, clientY: 2 }));
  expect(handlers.onHover).toHaveBeenCalledWith(child, { x: 1, y: 2 });
  element?.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  expect(handlers.onZoom).toHaveBeenCalledWith(child);
});

test("two thousand frames of recursion are drawn", () => {
  const recording = tinyRecording();
  const built = buildTree(
    flamegraph(
      { recording, watermark: recording.durationNs, running: false },
      new Map([
        ["metric", "allocated"],
        ["max_nodes", "5000"],
      ]),
    ),
  );
  if (!built) throw new Error("no tree");
  show(built, NONE);
  expect(host.querySelectorAll("g.frame").length).toBeGreaterThan(2000);
});
