// What style sheets and components ask for exists: an unknown token silently undoes its whole declaration.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const SRC = new URL("../../src", import.meta.url).pathname;

test("every token that is used is defined", () => {
  const texts = readdirSync(SRC, { recursive: true, encoding: "utf8" })
    .filter((name) => /\.(css|tsx?)$/.test(name))
    .map((name) => ({ name, text: readFileSync(join(SRC, name), "utf8") }));
  const defined = new Set(
    texts.flatMap(({ text }) => [...text.matchAll(/(--[a-z][a-z0-9-]*)["']?\]?\s*:/g)].map((m) => m[1])),
  );
  const unknown = texts.flatMap(({ name, text }) =>
    [...text.matchAll(/var\((--[a-z][a-z0-9-]*)/g)].flatMap((m) => (defined.has(m[1]) ? [] : [`${name}: ${m[1]}`])),
  );
  expect(unknown).toEqual([]);
});
