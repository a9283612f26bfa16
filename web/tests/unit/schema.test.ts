import { readFileSync } from "node:fs";
import openapiTS, { astToString, COMMENT_HEADER } from "openapi-typescript";
import { expect, test } from "vitest";

test("the types are those of the committed document: npm run generate:api", async () => {
  const document = new URL("../../openapi.json", import.meta.url);
  const written = readFileSync(new URL("../../src/api/schema.ts", import.meta.url), "utf8");
  expect(written).toBe(COMMENT_HEADER + astToString(await openapiTS(document)));
});
