import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

test("the icon is in the page and no document of its own: browsers read it again with each address", () => {
  const html = readFileSync(new URL("../../index.html", import.meta.url), "utf8");
  expect(/<link rel="icon" href="([^"]{0,22})/.exec(html)?.[1]).toBe("data:image/png;base64,");
});
