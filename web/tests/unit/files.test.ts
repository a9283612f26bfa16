// Source files in the order in which a reader looks for them.
import { expect, test } from "vitest";
import type { FunctionRow, Functions } from "../../src/api/types.ts";
import { flatByFile, inOrder, UNKNOWN } from "../../src/features/source/files.ts";

const row = (name: string, cum: number, flat = 0, file: string | null = null): FunctionRow =>
  ({ id: name, name, cum, flat, file }) as FunctionRow;

test("functions of the program are added up by file", () => {
  const functions = { rows: [row("f", 9, 5, "a.c"), row("g", 9, 2, "a.c"), row("0x1", 1, 1)] } as Functions;
  expect([...flatByFile(functions)]).toEqual([
    ["a.c", 7],
    [UNKNOWN, 1],
  ]);
  expect(flatByFile(undefined).size).toBe(0);
});

test("what allocates comes first, what belongs to the system last, unless it allocates itself", () => {
  const files = ["./csu/libc-start.c", "/usr/include/c++/12/bits/stl_map.h", "main.c", "a.c", "/usr/src/app/b.c"];
  const rows = files.map((name, i) => row(name, 100 - i));
  const flat = new Map([
    ["a.c", 7],
    ["/usr/src/app/b.c", 3],
  ]);
  expect(inOrder(rows, flat).map(({ name }) => name)).toEqual([
    "a.c",
    "/usr/src/app/b.c",
    "main.c",
    "./csu/libc-start.c",
    "/usr/include/c++/12/bits/stl_map.h",
  ]);
});
