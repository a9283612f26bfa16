// A row that is lit while one of its functions is under the pointer.
import type { ReactNode } from "react";
import { useLit } from "../../ui/lit.ts";

export function LitLine({ names, children }: { names: readonly string[]; children: ReactNode }) {
  return <tr {...useLit(names)}>{children}</tr>;
}
