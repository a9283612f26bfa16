import { expect, test } from "vitest";
import { identityOf, isChosen, nameIn, patternOf } from "../../src/lib/identity.ts";

const ONE = { name: "init", file: "/src/one.c", module: "app" };
const TWO = { name: "init", file: "/src/two.c", module: "app" };

test("two functions of one name are two", () => {
  const chosen = identityOf(ONE);
  expect([ONE, TWO].map((named) => isChosen(named, chosen))).toEqual([true, false]);
  expect(nameIn(chosen)).toBe("init");
  // What the server tries the pattern on has the line of the declaration, if that is known.
  const pattern = new RegExp(patternOf(chosen));
  expect(["init@/src/one.c:4@app", "init@/src/one.c@app"].every((text) => pattern.test(text))).toBe(true);
  expect(
    ["init@/src/two.c:4@app", "init@/src/oneXc:4@app", "preinit@/src/one.c:4@app", "init"].some((t) => pattern.test(t)),
  ).toBe(false);
});

test("a name alone means all that have it, as in addresses of earlier versions", () => {
  expect([ONE, TWO].map((named) => isChosen(named, "init"))).toEqual([true, true]);
  expect(patternOf("operator()(int)")).toBe("^operator\\(\\)\\(int\\)$");
});

test("what is not known is left out, and odd texts stay what they are", () => {
  expect(identityOf({ name: "0x12" })).toBe("0x12");
  const odd = { name: "a@b", file: null, module: null };
  expect(isChosen(odd, identityOf(odd))).toBe(true);
  const path = { name: "f", file: "/node_modules/@scope/a.c", module: "x" };
  expect(nameIn(identityOf(path))).toBe("f");
  expect(new RegExp(patternOf(identityOf(path))).test("f@/node_modules/@scope/a.c:3@x")).toBe(true);
});
