// Questions in SQL: asked, answered as a table, refused with a reason, cancelled; the address has the query.
import type { Page } from "playwright-core";
import { beforeAll, expect, inject, test } from "vitest";
import { apiUrl } from "../src/api/client.ts";
import type { Info, SqlAnswer, SqlSchema } from "../src/api/types.ts";
import { readSearch } from "../src/lib/search-params.ts";
import { api, open, recordingOf, savedLines, seriousFaults, settled, useBrowser } from "./browser.ts";

useBrowser();

const real = test.skipIf(inject("mock"));
const field = (page: Page) => page.getByLabel("Query in SQL");
const rows = (page: Page) => page.locator(".table-body [role=row]");
const summary = (page: Page) => page.getByTestId("sql-summary").textContent();
const asked = (page: Page) => readSearch(new URL(page.url()).search).sql;
const ENDLESS = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
let shop = "";

beforeAll(async () => {
  shop = (await recordingOf("shop")).id;
});

/** The server's own answer. */
const answerOf = (q: string, recordings: string) =>
  api<SqlAnswer>(apiUrl("sql", { q, recordings }).replace("/api/v1/", ""));

async function run(page: Page, query: string): Promise<void> {
  await field(page).fill(query);
  await field(page).press("Control+Enter");
  await expect.poll(() => asked(page)).toBe(query);
  await settled(page);
}

real("an example is asked by a click, and the address brings it back", async () => {
  const { examples } = await api<SqlSchema>("sql/schema");
  const example = examples[0];
  if (!example) throw new Error("there is no example");
  const page = await open(`/r/${shop}/sql`);
  await settled(page);
  await page.getByRole("button", { name: example.title }).click();
  await settled(page);
  const answer = await answerOf(example.query, shop);
  expect(answer.row_count).toBeGreaterThan(3);
  await expect.poll(() => summary(page)).toMatch(new RegExp(`^${answer.row_count} rows in [\\d.]+ (ms|s)$`));
  expect(await page.locator("[role=columnheader]").allTextContents()).toEqual(answer.columns);
  const first = await rows(page).first().locator("[role=gridcell]").first().textContent();
  expect(first).toBe(answer.rows[0]?.[answer.columns[0] ?? ""]);
  await page.reload();
  await settled(page);
  expect(await field(page).inputValue()).toBe(example.query);
  await expect.poll(() => rows(page).count()).toBe(answer.row_count);
  await page.goBack();
  await expect.poll(() => field(page).inputValue()).toBe("");
});

real("every example of one recording has an answer here", async () => {
  const { examples } = await api<SqlSchema>("sql/schema");
  const page = await open(`/r/${shop}/sql`);
  await settled(page);
  for (const example of examples) {
    await page.getByRole("button", { name: "Examples" }).click();
    await page.getByRole("menuitem", { name: example.title }).click();
    await expect.poll(() => asked(page)).toBe(example.query);
    await settled(page);
    expect(await page.getByRole("alert").count(), example.title).toBe(0);
    expect(await summary(page), example.title).toContain(" in ");
  }
  // The last one is about two recordings.
  expect(readSearch(new URL(page.url()).search).other).toBeDefined();
});

real("numbers are those of the recording, sorted and saved with every digit", async () => {
  const info = await api<Info>(`recordings/${shop}`);
  const page = await open(`/r/${shop}/sql`);
  await settled(page);
  await run(page, "SELECT count(*), sum(size) AS bytes, max(address) AS address FROM allocations");
  const cells = await rows(page).first().locator("[role=gridcell]").allTextContents();
  expect(cells[0]).toBe(info.allocations.count.toLocaleString("en-US"));
  expect(cells[2]).toMatch(/^0x[0-9a-f]+$/);
  expect(await rows(page).first().locator("[title$=bytes]").getAttribute("title")).toBe(
    `${info.allocations.bytes.toLocaleString("en-US")} bytes`,
  );

  const query = "SELECT DISTINCT size, NULL AS none FROM allocations ORDER BY size";
  await run(page, query);
  const { rows: sizes } = await answerOf(query, shop);
  const ascending = sizes.map((row) => Number(row["size"]));
  await page.getByRole("button", { name: "size" }).and(page.locator(".sort")).click();
  const [head, ...lines] = await savedLines(page);
  expect(head).toBe("size,none");
  expect(lines).toEqual([...ascending].reverse().map((size) => `${size},`));
});

real("what cannot be asked is said, with its place", async () => {
  const page = await open(`/r/${shop}/sql`);
  await settled(page);
  for (const [query, words] of [
    ["SELECT row,\n  absent FROM allocations", "no such column: absent (line 2, column 3)"],
    ["DROP TABLE allocations", "only SELECT is possible"],
    ["ATTACH '/etc/passwd' AS x", "only SELECT is possible"],
  ] as const) {
    await run(page, query);
    await expect.poll(() => page.getByRole("alert").textContent(), { message: query }).toContain(words);
  }
  await run(page, "SELECT 1 AS one");
  await expect.poll(() => summary(page)).toMatch(/^1 row in/);
  expect(await page.getByRole("alert").count()).toBe(0);
});

real("a query that takes long is cancelled, and the next one is answered", async () => {
  const page = await open(`/r/${shop}/sql`);
  await settled(page);
  await field(page).fill(ENDLESS);
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.getByRole("button", { name: "Cancel" }).click();
  await expect.poll(() => page.locator("main").textContent()).toContain("Cancelled");
  // More than can be at work at once: the server has let go of all of them.
  for (let i = 0; i < 3; i += 1) {
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.getByRole("button", { name: "Cancel" }).click();
  }
  await run(page, "SELECT 2 AS two");
  await expect.poll(() => summary(page), { timeout: 10_000 }).toMatch(/^1 row in/);
});

real("an answer that is cut says so", async () => {
  const page = await open(`/r/${shop}/sql`);
  await settled(page);
  await run(page, "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000) SELECT i FROM n");
  await expect.poll(() => summary(page)).toContain("the first 10,000, there are more");
  expect(await page.locator("[role=grid]").getAttribute("aria-rowcount")).toBe("10001");
});

real("a second recording is number 2", async () => {
  const other = await recordingOf("bazaar");
  const page = await open(`/r/${shop}/sql`);
  await settled(page);
  await page.getByLabel("Second recording").selectOption(other.id);
  const query = "SELECT recording, id FROM recordings ORDER BY recording DESC";
  await run(page, query);
  const answer = await answerOf(query, `${shop},${other.id}`);
  const shown = await rows(page).evaluateAll((all) => all.map((row) => row.children[1]?.textContent));
  expect(shown).toEqual(answer.rows.map((row) => row["id"]));
  expect(shown).toHaveLength(2);
});

real("names of the list go into the query where the caret is", async () => {
  const page = await open(`/r/${shop}/sql`);
  await settled(page);
  await field(page).fill("SELECT  FROM threads");
  await field(page).evaluate((element: HTMLTextAreaElement) => element.setSelectionRange(7, 7));
  const table = page.locator(".sql-table", { has: page.locator("summary", { hasText: /^threads$/ }) });
  await table.locator("summary").focus();
  await page.keyboard.press("Enter");
  await table.getByRole("button", { name: "os_thread" }).focus();
  await page.keyboard.press("Enter");
  expect(await field(page).inputValue()).toBe("SELECT os_thread FROM threads");
  await table.getByRole("button", { name: "First rows" }).click();
  await expect.poll(() => asked(page)).toBe("SELECT * FROM threads LIMIT 100");
  await settled(page);
  await expect.poll(() => rows(page).count()).toBeGreaterThan(0);
});

for (const theme of ["light", "dark"] as const) {
  for (const width of [1280, 390]) {
    real(`axe finds nothing serious in an answer and a refusal, ${theme}, ${width} pixels`, async () => {
      const address = (query: string) => `/r/${shop}/sql?sql=${encodeURIComponent(query)}`;
      for (const query of ["SELECT *, NULL AS none FROM sites()", "SELECT absent", "SELECT 1 AS one LIMIT 0"]) {
        const page = await open(address(query), { theme, width });
        await settled(page);
        await page.locator("summary").first().click();
        expect(await seriousFaults(page), query).toEqual([]);
        const beyond = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
        expect(beyond, query).toBeLessThanOrEqual(0);
        await page.close();
      }
    });
  }
}
