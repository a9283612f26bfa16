import { expect, test } from "vitest";
import { jsonSteps } from "../../src/lib/json-steps.ts";

/** The value and the number of steps. */
function taken(text: string): [unknown, number] {
  const steps = jsonSteps(text);
  for (let count = 1; ; count += 1) {
    const { done, value } = steps.next();
    if (done) return [value, count];
  }
}

const NASTY = ['"', "\\", '\\"', '},{"name":', "],[", "{", "ü€😀", "", "\n"];

test("a large document is parsed in many steps, to what JSON.parse makes of it", () => {
  const document = {
    schema: "heaptrace.flamegraph/1",
    none: null,
    total: -12.5e3,
    empty: { list: [], object: {}, text: "" },
    rows: {
      id: Array.from({ length: 60_000 }, (_, i) => i * 1_000_003),
      frame: Array.from({ length: 60_000 }, (_, i) => (i % 7 === 0 ? null : i)),
      nested: [[1, [2, { "]": "[" }]], []],
    },
    frames: Array.from({ length: 9000 }, (_, i) => ({ name: `f${i}${NASTY[i % NASTY.length]}`, inlined: i % 2 === 0 })),
    long: '\\"'.repeat(80_000),
    __proto__: { not: "seen" },
    exactness: { lost: 0 },
  };
  const text = JSON.stringify(document);
  const [value, steps] = taken(text);
  expect(value).toEqual(JSON.parse(text));
  expect(steps).toBeGreaterThan(10);
});

test("a list, a text and a name that is no name of a plain object are kept", () => {
  const list = Array.from({ length: 30_000 }, (_, i) => NASTY[i % NASTY.length]);
  expect(taken(JSON.stringify(list))[0]).toEqual(list);
  expect(taken(JSON.stringify("x".repeat(300_000)))[0]).toBe("x".repeat(300_000));
  const text = `{"__proto__":[${list.map((one) => JSON.stringify(one)).join(",")}]}`;
  expect(JSON.stringify(taken(text)[0])).toBe(text);
});

test("a small document is one step, and what is no JSON is an error", () => {
  expect(taken('{"a":[1,2]}')).toEqual([{ a: [1, 2] }, 1]);
  expect(() => taken('{"a":')).toThrow(SyntaxError);
});
