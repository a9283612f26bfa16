// Stacks as text, to be copied into a mail or an issue.
import type { Frame } from "../api/types.ts";

/** What a frame is called: its function, else its address and module. */
export function frameName(frame: Frame): string {
  return frame.function ?? (frame.module ? `${frame.address} in ${frame.module}` : frame.address);
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
