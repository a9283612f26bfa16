// Stacks as text, to be copied into a mail or an issue.
import type { Frame } from "../api/types.ts";
import { bareName, location, placedName } from "./names.ts";

/** What a frame is called in every view: its function, else where it is in its module's file. */
export function frameName(frame: Frame): string {
  return frame.function ?? frame.offset ?? frame.address;
}

/** The same where no module is beside it. */
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

/**
 * Who allocated and who called that: from the frame that the server calls the program's function, else the innermost.
 * What calls the program's outermost function is the library that started it, and says nothing.
 */
export function allocatedBy(stack: readonly Frame[]): { by: Frame | undefined; from: Frame | undefined } {
  const own = Math.max(
    0,
    stack.findIndex((frame) => !frame.library),
  );
  const by = stack[own];
  // A function that calls itself, or whose part was split off, says nothing new.
  const says = (frame: Frame) =>
    (frame.function === null || frame.function !== by?.function) && (by?.library || !frame.library);
  const from = stack.slice(own + 1).find(says);
  return { by, from };
}

/** The name of who allocated, as it is in a heading: no module or file is beside it. */
export function allocatorLabel(stack: readonly Frame[], otherwise: string): string {
  const { by } = allocatedBy(stack);
  return by ? placedName(bareName(frameTitle(by), 80), by.file) : otherwise;
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
