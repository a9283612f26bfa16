import { expect, test } from "vitest";
import type { Frame } from "../../src/api/types.ts";
import { allocatedBy, allocatorName, allocatorPlace, callerName } from "../../src/lib/stack.ts";

function frame(fn: string, file: string | null, module: string): Frame {
  const library = file?.startsWith("/rustc/") ?? true;
  return { function: fn, file, line: 7, module, inlined: false, library, address: "0x1" };
}

test("who allocated is the innermost function of the program, not of its standard library", () => {
  const stack = [
    frame("alloc::alloc::alloc", "/rustc/5980/library/alloc/src/alloc.rs", "leak"),
    frame("alloc::vec::from_elem", "/rustc/5980/library/alloc/src/vec/mod.rs", "leak"),
    frame("leak::func1", "src/leak.rs", "leak"),
    frame("leak::main", "src/leak.rs", "leak"),
  ];
  expect([allocatorName(stack, "s1"), allocatorPlace(stack), callerName(stack)]).toEqual([
    "leak::func1",
    "leak.rs:7",
    "leak::main",
  ]);
});

test("who called is a function of the program, too, and nobody where a library started it", () => {
  const invoke = frame("std::__invoke", "/rustc/5980/library/std/src/panicking.rs", "leak");
  const worker = frame("leak::worker", "src/leak.rs", "leak");
  const main = frame("leak::main", "src/leak.rs", "leak");
  expect(callerName([worker, invoke, main])).toBe("leak::main");
  expect(callerName([worker, worker, invoke])).toBe("");
});

test("where all of a stack is of libraries, the innermost function is named", () => {
  const stack = [frame("__strdup", null, "libc.so.6"), frame("operator new", null, "libstdc++.so.6")];
  expect(allocatedBy(stack).by).toBe(stack[0]);
  expect(callerName(stack)).toBe("operator new");
  expect([allocatorName([], "s1"), allocatorPlace([]), callerName([])]).toEqual(["s1", undefined, ""]);
});
