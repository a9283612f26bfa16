// Stacks as text, to be copied into a mail or an issue.
import type { Frame } from "../api/types.ts";
import { location } from "./names.ts";

/** What a frame is called in every view: its function, else where it is in its module's file. */
export function frameName(frame: Frame): string {
  return frame.function ?? frame.offset ?? frame.address;
}

/** The same where no module stands beside it. */
export function frameTitle(frame: Frame): string {
  return frame.function === null && frame.module ? `${frameName(frame)} in ${frame.module}` : frameName(frame);
}

/** One line a frame, leaf first: `#0 name at a.c:12 (libx.so)`. */
export function stackText(stack: readonly Frame[]): string {
  return stack
    .map((frame, i) => {
      const place = frame.file ? ` at ${frame.file}${frame.line ? `:${frame.line}` : ""}` : "";
      const module = frame.module ? ` (${frame.module})` : "";
      return `#${i} ${frameName(frame)}${frame.inlined ? " [inlined]" : ""}${place}${module}`;
    })
    .join("\n");
}

const LIBRARY_SOURCES = ["/rustc/", "/usr/include/", "/usr/lib/", "./csu/", "../sysdeps/"];
const LIBRARY_MODULES = ["libc.so", "ld-linux", "libstdc++.so", "libgcc_s.so", "libpthread.so"];

/** Code that came with the compiler or the C library, by where its source was. */
function isLibrary({ file, module }: Frame): boolean {
  if (file && LIBRARY_SOURCES.some((source) => file.startsWith(source))) return true;
  return !!module && LIBRARY_MODULES.some((library) => module.startsWith(library));
}

/** Who allocated and who called that: from the innermost frame that is of no library, else from the innermost. */
export function allocatedBy(stack: readonly Frame[]): { by: Frame | undefined; from: Frame | undefined } {
  const own = Math.max(
    0,
    stack.findIndex((frame) => !isLibrary(frame)),
  );
  return { by: stack[own], from: stack[own + 1] };
}

/** The name of who allocated, where no module stands beside it. */
export function allocatorTitle(stack: readonly Frame[], otherwise: string): string {
  const { by } = allocatedBy(stack);
  return by ? frameTitle(by) : otherwise;
}

/** The name of who allocated. */
export function allocatorName(stack: readonly Frame[], otherwise: string): string {
  const { by } = allocatedBy(stack);
  return by ? frameName(by) : otherwise;
}

/** Where that is: source line, else the module. */
export function allocatorPlace(stack: readonly Frame[]): string | undefined {
  const { by } = allocatedBy(stack);
  return location(by?.file, by?.line) ?? by?.module ?? undefined;
}

/** The name of its caller, or nothing. */
export function callerName(stack: readonly Frame[]): string {
  const { from } = allocatedBy(stack);
  return from ? frameName(from) : "";
}
