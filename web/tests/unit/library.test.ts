// Whose code a frame is: the same cases as the server's.
import { expect, test } from "vitest";
import { isLibrary } from "../../src/lib/library.ts";
import { allocatedBy } from "../../src/lib/stack.ts";
import cases from "./library-frames.json" with { type: "json" };

test.each(cases)("$function of $module, $file", ({ library, ...frame }) => {
  expect(isLibrary(frame)).toBe(library);
});

test("who is named as the one who allocated is the program, not what it calls", () => {
  const stack = cases.map(({ library: _, ...frame }) => ({ ...frame, line: null, inlined: false, address: "0x1" }));
  const of = (name: string) => {
    const found = stack.find((frame) => frame.function === name);
    if (!found) throw new Error(name);
    return found;
  };
  const { by, from } = allocatedBy([of("alloc::alloc::alloc"), of("alloc::vec::Vec<T>::push"), of("load"), of("main")]);
  expect([by?.function, from?.function]).toEqual(["load", "main"]);
});
