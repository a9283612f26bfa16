// Pure parts of the views, on documents of a synthetic recording.
import { expect, test } from "vitest";
import { parsePresets, presetName } from "../../src/app/presets.ts";
import { heaviestPath, keyOf, pathTo, visibleLines } from "../../src/features/calltree/rows.ts";
import { changeRows } from "../../src/features/compare/change.ts";
import { escapeXml, pictureOf } from "../../src/features/flamegraph/picture.ts";
import { buildHeatMap, filtersOf, sumOf } from "../../src/features/lifetimes/heat-map.ts";
import { factsOf } from "../../src/features/overview/facts.ts";
import { findingsOf } from "../../src/features/overview/findings.ts";
import { auditOf } from "../../src/features/recording/audit.ts";
import { editorLink, sourceFilters, sourceLines } from "../../src/features/source/lines.ts";
import { buildMatrix } from "../../src/features/threads/matrix.ts";
import { buildTree, everyNode } from "../../src/lib/flame-tree.ts";
import { stackText } from "../../src/lib/stack.ts";
import { lifetimes } from "../mock-api/classes.ts";
import { leaks } from "../mock-api/leaks.ts";
import { diff, info, source, threads } from "../mock-api/process.ts";
import { HOSTILE_NAME, typicalRecording } from "../mock-api/recording.ts";
import { flamegraph, functions } from "../mock-api/trees.ts";

const recording = typicalRecording(10);
const view = { recording, watermark: recording.durationNs, running: false };

test("findings: at most five, what grows first, each with its evidence", () => {
  const found = findingsOf({
    info: info(view),
    leaks: leaks(view, new Map()),
    peak: functions(view, new Map([["metric", "peak"]])),
    temporary: functions(
      view,
      new Map([
        ["metric", "temporary"],
        ["unit", "count"],
      ]),
    ),
    threads: threads(view, new Map()),
  });
  expect(found.length).toBeGreaterThan(2);
  expect(found.length).toBeLessThanOrEqual(5);
  expect(found[0]?.title).toContain("keeps growing");
  expect(found[0]?.view).toBe("leaks");
});

test("findings: what is lost comes before everything", () => {
  const whole = info(view);
  const cut = { ...whole, events: { ...whole.events, lost: 12 } };
  const [first] = findingsOf({
    info: cut,
    leaks: leaks(view, new Map()),
    peak: undefined,
    temporary: undefined,
    threads: undefined,
  });
  expect(first?.id).toBe("lost");
  expect(factsOf(cut, undefined, false).at(-1)).toMatchObject({ id: "lost", tone: "bad" });
  expect(auditOf(cut).find((entry) => entry.id === "lost")?.tone).toBe("bad");
  expect(auditOf(whole).find((entry) => entry.id === "lost")?.tone).toBe("good");
});

test("facts quote the documents", () => {
  const facts = factsOf(info(view), leaks(view, new Map()), false);
  const leaked = facts.find((fact) => fact.id === "leaked");
  expect(leaked?.exact).toBe(
    `${leaks(view, new Map()).leaked.bytes.toLocaleString("en-US")} bytes in ${leaks(view, new Map()).leaked.count.toLocaleString("en-US")} blocks`,
  );
  for (const fact of facts) expect(fact.definition.length, fact.id).toBeGreaterThan(15);
});

test("the heat map keeps every block, and its filters keep the patch's", () => {
  const document = lifetimes(view, new Map());
  const map = buildHeatMap(document, "count");
  if (!map) throw new Error("the map is empty");
  const rows = map.values.length - 1;
  const columns = (map.values[0]?.length ?? 0) - 1;
  const all = sumOf(map, { row: 0, rowTo: rows, column: 0, columnTo: columns });
  expect(all.count).toBe(document.map_count.reduce((sum, count) => sum + count, 0));
  const patch = { row: 3, rowTo: 1, column: 6, columnTo: 4 };
  const filters = filtersOf(map, patch);
  const kept = lifetimes(view, new Map(Object.entries(filters))).map_count.reduce((sum, count) => sum + count, 0);
  expect(kept).toBe(sumOf(map, patch).count);
});

test("an empty heat map is none", () => {
  expect(
    buildHeatMap(
      { ...lifetimes(view, new Map()), map_count: [0, 0], map_bytes: [0, 0], map_lifetime: [0], map_size: [0, 1] },
      "bytes",
    ),
  ).toBeUndefined();
});

test("the matrix adds up, and says how many threads it leaves out", () => {
  const document = threads(view, new Map());
  const matrix = buildMatrix(document, "bytes");
  const total = document.pairs.reduce((sum, pair) => sum + pair.amount.bytes, 0);
  expect(matrix.total).toBe(total);
  expect(matrix.cells.flat().reduce((sum, value) => sum + value, 0)).toBe(total);
  expect(matrix.across).toBeGreaterThan(0);
  expect(buildMatrix(document, "bytes", 2).leftOut).toBe(matrix.ids.length - 2);
});

test("survived, new and dead add up to both sides", () => {
  for (const row of changeRows(
    diff(
      view,
      new Map([
        ["from", "4s"],
        ["to", "7s"],
      ]),
      undefined,
    ),
  )) {
    expect((row.survived?.bytes ?? 0) + (row.allocated?.bytes ?? 0)).toBe(row.after.bytes);
    expect((row.survived?.bytes ?? 0) + (row.dead?.bytes ?? 0)).toBe(row.before.bytes);
  }
});

test("the call tree opens down to what is selected elsewhere", () => {
  const tree = buildTree(flamegraph(view, new Map([["metric", "allocated"]])));
  if (!tree) throw new Error("no tree");
  const closed = visibleLines(tree, heaviestPath(tree), new Map());
  const hidden = [...everyNode(tree)].find(
    (node) => node.frame && node.depth > 2 && !closed.some((line) => line.node.frame?.name === node.frame?.name),
  );
  if (!hidden?.frame) throw new Error("everything is open");
  const lines = visibleLines(tree, pathTo(tree, hidden.frame.name), new Map());
  expect(lines.some((line) => line.node.frame?.name === hidden.frame?.name)).toBe(true);
  expect(pathTo(tree, "nobody").size).toBe(0);
});

test("the call tree opens along the weight, and a loaded rest takes its place", () => {
  const tree = buildTree(flamegraph(view, new Map([["metric", "peak"]])));
  if (!tree) throw new Error("no tree");
  const open = heaviestPath(tree);
  const lines = visibleLines(tree, open, new Map());
  expect(lines.length).toBeGreaterThan(5);
  expect(lines[0]?.open).toBe(true);
  const rest = lines.find((line) => line.node.folded > 0);
  expect(rest?.canOpen).toBe(true);
  const parent = rest?.node.parent;
  if (!parent) throw new Error("no rest");
  const more = visibleLines(tree, open, new Map([[parent.id, parent.children.filter((child) => child.folded === 0)]]));
  expect(more.some((line) => line.key === keyOf(rest.node))).toBe(false);
  expect(new Set(lines.map((line) => line.key)).size).toBe(lines.length);
});

test("saved pictures hold names as text", () => {
  const document = flamegraph(view, new Map());
  const tree = buildTree(document);
  if (!tree) throw new Error("no tree");
  const svg = pictureOf(tree, document, 1000, "light", undefined, "shop (4711)").svg();
  expect(svg).toContain(">shop (4711): ");
  expect(svg).not.toContain("<img");
  expect(svg).toContain(escapeXml(HOSTILE_NAME));
  expect(escapeXml("a\u0000\u001b<b>&")).toBe("a\ufffd\ufffd&#60;b&#62;&#38;");
});

test("stacks as text", () => {
  expect(
    stackText([
      { function: "f", file: "a.c", line: 3, module: "app", inlined: true, library: false, address: "0x1" },
      { function: null, file: null, line: null, module: null, inlined: false, library: false, address: "0x2" },
    ]),
  ).toBe("#0 f [inlined] at a.c:3 (app)\n#1 0x2");
});

test("source lines carry their sums, with and without the text", () => {
  const document = source(
    view,
    new Map([
      ["file", "src/render.rs"],
      ["metric", "allocated"],
    ]),
  );
  const { rows, total } = sourceLines(document);
  expect(rows.find((row) => row.line === 77)?.cum).toBeGreaterThan(0);
  expect(rows.length).toBeGreaterThan(77);
  expect(sourceLines({ ...document, text: null }).rows.map((row) => row.line)).toEqual(
    document.lines.map((line) => line.line),
  );
  expect(total).toBe(document.lines.reduce((sum, line) => sum + line.flat, 0));
});

test("a source is asked for with all filters, and a module by its pattern", () => {
  const filters = { hide: "wrap", context: "7", transform: "drop-function:f", module: "^libc" };
  expect(sourceFilters(filters)).toEqual(filters);
  expect(sourceFilters({ module: "6" })).toEqual({ module: "(6)" });
});

test("editor links are made of templates that cannot run code", () => {
  expect(editorLink("vscode://file/%f:%l", "/a b/c.rs", 7)).toBe("vscode://file//a%20b/c.rs:7");
  for (const template of ["", "no scheme", "javascript:alert(1)//%f", " JavaScript:alert(1)", "data:text/html,%f"]) {
    expect(editorLink(template, "/a.c", 1), template).toBeUndefined();
  }
});

test("presets survive their text, and nothing else does", () => {
  const filters = { focus: "a|b", min_size: "64k" };
  expect(parsePresets(JSON.stringify([{ name: "x", filters }]))).toEqual([{ name: "x", filters }]);
  expect(parsePresets(JSON.stringify([{ name: " ", filters }]))).toEqual([
    { name: "focus a|b, min_size 64k", filters },
  ]);
  expect(presetName({ focus: "y".repeat(200) }).length).toBe(80);
  for (const text of [
    null,
    "",
    "{",
    "7",
    '{"a":1}',
    '[1,null,{"filters":7},{"filters":{"focus":7,"__proto__":"x"}}]',
  ]) {
    expect(parsePresets(text), String(text)).toEqual([]);
  }
});
