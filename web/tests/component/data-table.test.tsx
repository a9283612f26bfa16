// @vitest-environment jsdom
import "./setup.ts";
import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { expect, test } from "vitest";
import { readKeys, writeKeys } from "../../src/lib/sorting.ts";
import { functionColumn } from "../../src/ui/columns.tsx";
import { type Column, DataTable, toTsv } from "../../src/ui/data-table.tsx";
import { renderInPage } from "./page.tsx";

interface Row {
  id: string;
  size: number;
  name: string;
}

const ROWS: Row[] = [
  { id: "a", size: 10, name: "beta" },
  { id: "b", size: 300, name: "alpha" },
  { id: "c", size: 20, name: '<img src=x onerror="alert(1)">' },
];

const COLUMNS: Column<Row>[] = [
  {
    id: "size",
    header: "Size",
    definition: "Bytes",
    width: "80px",
    numeric: true,
    value: (row) => row.size,
    cell: (row) => row.size,
  },
  { id: "name", header: "Name", definition: "Name", width: "1fr", value: (row) => row.name, cell: (row) => row.name },
];

function names(): (string | undefined)[] {
  return screen
    .getAllByRole("row")
    .slice(1)
    .map((row) => within(row).getAllByRole("gridcell")[1]?.textContent ?? undefined);
}

const NONE = { column: "", reversed: false };

function table(column: string, more: Partial<Parameters<typeof DataTable<Row>>[0]> = {}) {
  const sorted: string[] = [];
  const view = renderInPage(
    <DataTable
      label="Things"
      rows={ROWS}
      columns={COLUMNS}
      rowKey={(row) => row.id}
      sorting={{ by: "here", keys: readKeys(column, undefined, NONE), onSort: (keys) => sorted.push(writeKeys(keys)) }}
      {...more}
    />,
  );
  return { ...view, sorted };
}

test("numbers sort from the top, names from the start of the alphabet, reversed the other way", () => {
  table("size");
  expect(names()).toEqual(["alpha", '<img src=x onerror="alert(1)">', "beta"]);
});

test("names", () => {
  table("name");
  expect(names()).toEqual(['<img src=x onerror="alert(1)">', "alpha", "beta"]);
});

test("reversed", () => {
  table("-size");
  expect(names()).toEqual(["beta", '<img src=x onerror="alert(1)">', "alpha"]);
  expect(screen.getByRole("columnheader", { name: /Size/ }).getAttribute("aria-sort")).toBe("ascending");
});

test("a header asks for its column, once more for the other direction", () => {
  const { sorted } = table("size");
  fireEvent.click(screen.getByRole("button", { name: "Name" }));
  fireEvent.click(screen.getByRole("button", { name: /Size/ }));
  // The table is still in its first order: nobody has answered the wish for another.
  fireEvent.click(screen.getByRole("button", { name: /Size/ }));
  expect(sorted).toEqual(["name", "size", "-size"]);
});

test("Shift adds a column that decides among equals; the second click need not wait for the first", () => {
  const { sorted } = table("size");
  fireEvent.click(screen.getByRole("button", { name: "Name" }));
  fireEvent.click(screen.getByRole("button", { name: /Size/ }), { shiftKey: true });
  fireEvent.click(screen.getByRole("button", { name: /Size/ }), { shiftKey: true });
  fireEvent.click(screen.getByRole("button", { name: /Size/ }), { shiftKey: true });
  expect(sorted).toEqual(["name", "name,size", "name,-size", "name"]);
});

test("two columns decide, numbered; the first alone is announced", () => {
  const rows = [...ROWS, { id: "d", size: 300, name: "aardvark" }];
  table("size,name", { rows });
  expect(names()).toEqual(["aardvark", "alpha", '<img src=x onerror="alert(1)">', "beta"]);
  expect(screen.getAllByRole("columnheader").map((header) => header.textContent)).toEqual(["Size ▾1", "Name ▴2"]);
  expect(screen.getByRole("columnheader", { name: /Size/ }).getAttribute("aria-sort")).toBe("descending");
  expect(screen.getByRole("columnheader", { name: /Name/ }).getAttribute("aria-sort")).toBeNull();
  expect(screen.getByRole("button", { name: "Name" }).getAttribute("aria-description")).toContain("number 2");
});

test("names are text", () => {
  const { container } = table("size");
  expect(container.querySelector("img")).toBeNull();
});

test("arrows select, Enter opens, Shift+F10 has the menu, Escape closes it", async () => {
  const selected: string[] = [];
  const opened: string[] = [];
  const ran: string[] = [];
  table("size", {
    onSelect: (row) => selected.push(row.id),
    onOpen: (row) => opened.push(row.id),
    menu: (row) => [{ label: `About ${row.id}`, run: () => ran.push(row.id) }],
  });
  const [, first] = screen.getAllByRole("row");
  if (!first) throw new Error("no row");
  first.focus();
  fireEvent.keyDown(first, { key: "ArrowDown" });
  expect(selected).toEqual(["c"]);
  const second = screen.getAllByRole("row")[2] as HTMLElement;
  await waitFor(() => expect(document.activeElement).toBe(second));
  fireEvent.keyDown(second, { key: "Enter" });
  expect(opened).toEqual(["c"]);
  fireEvent.keyDown(second, { key: "F10", shiftKey: true });
  const item = screen.getByRole("menuitem", { name: "About c" });
  expect(document.activeElement).toBe(item);
  fireEvent.keyDown(item, { key: "Escape" });
  expect(screen.queryByRole("menu")).toBeNull();
  expect(document.activeElement).toBe(second);
  fireEvent.contextMenu(second);
  fireEvent.click(screen.getByRole("menuitem", { name: "About c" }));
  expect(ran).toEqual(["c"]);
});

test("copied tables are tab separated, one row a line", () => {
  expect(toTsv(COLUMNS, [{ id: "x", size: 1, name: "a\tb\nc" }])).toBe("Size\tName\n1\ta b c");
});

test("a column of functions names the file of code that has no name of its own", () => {
  const rows = [
    { name: "<module>", file: "/srv/app/load.py" },
    { name: "insert", file: "/srv/app/cache.py" },
  ];
  const head = { id: "function", header: "Function", definition: "Name", width: "1fr" };
  const columns = [
    functionColumn<(typeof rows)[number]>(
      head,
      (row) => row.name,
      (row) => row.file,
    ),
  ];
  renderInPage(<DataTable label="Functions" rows={rows} columns={columns} rowKey={(row) => row.name} />);
  const cells = screen.getAllByRole("row").map((row) => row.textContent);
  expect(cells).toContain("<module> load.py");
  expect(cells).toContain("insert");
});
