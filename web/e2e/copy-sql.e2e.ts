// “Copy as SQL” on tables: the statement, asked in the SQL view, has the table's rows in the table's order.
import type { Page } from "playwright-core";
import { beforeAll, expect, inject, test } from "vitest";
import { open, recordingOf, seriousFaults, settled, useBrowser } from "./browser.ts";

useBrowser();
// The statements are about one recording that has ended, and asked of a server that knows SQL.
const real = test.skipIf(inject("mock"));
let shop = "";

beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
});

/** Rows that are compared, from the top. */
const COMPARED = 6;

/** Numbers with all digits, and texts, of two columns, by their headers. */
async function firstRows(page: Page, headers: readonly string[]): Promise<string[][]> {
  return page.evaluate(
    ([wanted, most]) => {
      const table = document.querySelector(".table-view [role=grid], .table-view [role=table], .table-view");
      const heads = [...(table?.querySelectorAll("[role=columnheader]") ?? [])].map((head) =>
        (head.textContent ?? "").replace(/[ ▾▴0-9]+$/, "").trim(),
      );
      const rows = [...(table?.querySelectorAll<HTMLElement>(".table-body .table-row") ?? [])].sort(
        (a, b) => Number(a.dataset["index"]) - Number(b.dataset["index"]),
      );
      return rows.slice(0, most).map((row) =>
        wanted.map((name) => {
          const cell = row.children[heads.indexOf(name)];
          const exact = /^[\d,]+(?= (bytes?|blocks?)\b)/.exec(
            cell?.querySelector("[title]")?.getAttribute("title") ?? "",
          );
          const text = exact?.[0] ?? cell?.querySelector(".mono")?.textContent ?? cell?.textContent ?? "";
          return text.replaceAll(",", "").trim();
        }),
      );
    },
    [headers, COMPARED] as const,
  );
}

const TABLES: { path: string; page: [string, string]; sql: [string, string] }[] = [
  { path: "functions", page: ["Program function", "Flat"], sql: ["function", "flat_bytes"] },
  {
    path: "functions?by=function&metric=allocated&sort=cum",
    page: ["Function", "Cum"],
    sql: ["function", "cum_bytes"],
  },
  {
    path: "functions?by=file&metric=allocated&unit=count",
    page: ["Source file", "Flat"],
    sql: ["function", "flat_count"],
  },
  { path: "functions?by=module&metric=leaked", page: ["Module", "Flat"], sql: ["function", "flat_bytes"] },
  { path: "sites", page: ["Allocated by", "At peak"], sql: ["function", "peak_bytes"] },
  {
    path: "sites?sort=count,-name&from=0&to=200000000",
    page: ["Allocated by", "Allocated"],
    sql: ["function", "allocated_bytes"],
  },
  { path: "leaks", page: ["Allocated by", "Bytes"], sql: ["function", "bytes"] },
  { path: "leaks?persite=1&sort=-bytes", page: ["Allocated by", "Bytes"], sql: ["function", "bytes"] },
  { path: "threads?sort=freed", page: ["Id", "Freed"], sql: ["thread", "freed_bytes"] },
];

real("the statement of each table has its rows, in its order", async () => {
  for (const table of TABLES) {
    const page = await open(`/r/${shop}/${table.path}`);
    await settled(page);
    const there = await firstRows(page, table.page);
    expect(there.length, table.path).toBeGreaterThan(0);
    expect(
      there[0]?.every((text) => text !== ""),
      `${table.path}: ${there[0]}`,
    ).toBe(true);
    await page.getByRole("button", { name: "Copy as SQL" }).click();
    await expect
      .poll(() => page.evaluate(() => navigator.clipboard.readText()), { message: table.path })
      .toMatch(/^SELECT /);
    const statement = await page.evaluate(() => navigator.clipboard.readText());
    await page.goto(new URL(`/r/${shop}/sql`, page.url()).href);
    await settled(page);
    const field = page.getByLabel("Query in SQL");
    await field.fill(statement);
    await field.press("Control+Enter");
    await page.getByTestId("sql-summary").waitFor();
    await settled(page);
    expect(await page.getByRole("alert").count(), statement).toBe(0);
    expect(await firstRows(page, table.sql), `${table.path}: ${statement}`).toEqual(there);
    await page.context().close();
  }
});

real("where no statement says the same, the button says why", async () => {
  const page = await open(`/r/${shop}/sites?focus=main`);
  await settled(page);
  const button = page.getByRole("button", { name: "Copy as SQL" });
  expect(await button.isDisabled()).toBe(true);
  expect(await button.getAttribute("title")).toContain("Filters");
  expect(await seriousFaults(page)).toEqual([]);
});
