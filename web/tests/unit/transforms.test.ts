// Transforms in the address, on chips and by keys.
import { expect, test } from "vitest";
import { readSearch, writeSearch } from "../../src/lib/search-params.ts";
import {
  readTransforms,
  TRANSFORM_KINDS,
  TRANSFORMS,
  transformOf,
  transformText,
  withoutTransform,
  withTransform,
  writeTransforms,
} from "../../src/lib/transforms.ts";

const FRAME = { name: "~A::B(int)", file: "src/a b.c", module: "app", id: 17 };

test("every kind is what the server understands, in the address and back", () => {
  let text: string | undefined;
  for (const kind of TRANSFORM_KINDS) {
    const transform = transformOf(kind, FRAME);
    if (!transform) throw new Error(kind);
    text = withTransform(text, transform);
  }
  expect(text?.split("\n")).toContain("merge-function:~A::B(int)@src/a b.c@app");
  expect(text?.split("\n")).toContain("collapse-module:app");
  expect(text?.split("\n")).toContain("focus-subtree:17");
  const search = readSearch(writeSearch({ filters: { transform: text ?? "" } }));
  expect(search.filters?.transform).toBe(text);
  expect(writeTransforms(readTransforms(text))).toBe(text);
  expect(new Set(TRANSFORM_KINDS.map((kind) => TRANSFORMS[kind].key)).size).toBe(TRANSFORM_KINDS.length);
});

test("what means nothing for a frame is not offered", () => {
  expect(transformOf("focus-subtree", { ...FRAME, id: undefined })).toBeUndefined();
  expect(transformOf("collapse-module", { ...FRAME, module: null })).toBeUndefined();
  // A name with a line break would be two transforms.
  expect(transformOf("merge-function", { name: "a\ndrop-function:main" })).toBeUndefined();
});

test("one at a time goes, in order; too many are refused", () => {
  const three = "merge-function:a\ncollapse-recursion\ndrop-function:b";
  expect(withoutTransform(three, 1)).toBe("merge-function:a\ndrop-function:b");
  expect(withoutTransform("merge-function:a", 0)).toBeUndefined();
  expect(readTransforms("nonsense:x\nmerge-function:a\n\n")).toEqual([{ kind: "merge-function", target: "a" }]);
  const full = Array.from({ length: 32 }, () => "collapse-recursion").join("\n");
  expect(withTransform(full, { kind: "merge-function", target: "a" })).toBeUndefined();
  expect(transformText({ kind: "merge-function", target: "f@a.c@app" })).toEqual({ what: "merge function", name: "f" });
  expect(transformText({ kind: "collapse-recursion", target: "" })).toEqual({
    what: "collapse recursion",
    name: "all",
  });
});
