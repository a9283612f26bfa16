// The function under the pointer, in whatever part of the page: it is lit in all the others. Gone with the pointer, so
// it is no part of the address; what is selected is, and stays lit.
import { useContext, useMemo, useSyncExternalStore } from "react";
import { nameIn } from "../lib/identity.ts";
import { PageSource } from "./page.ts";

let lit: string | undefined;
const listeners = new Set<() => void>();

export function light(name: string | undefined): void {
  if (lit === name) return;
  lit = name;
  for (const listener of listeners) listener();
}

/** For what draws by itself: calls back with the name, until the returned function is called. */
export function onLight(listener: (name: string | undefined) => void): () => void {
  const call = () => listener(lit);
  listeners.add(call);
  return () => listeners.delete(call);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Properties of an element that stands for functions, the first of them foremost. */
export function useLit(names: readonly string[]): {
  "data-lit": true | undefined;
  onPointerEnter: () => void;
  onPointerLeave: () => void;
} {
  const selected = useContext(useContext(PageSource))?.search.selected;
  const pointed = useSyncExternalStore(subscribe, () => lit !== undefined && names.includes(lit));
  const on = pointed || (selected !== undefined && names.includes(nameIn(selected)));
  const [first] = names;
  return useMemo(
    () => ({
      "data-lit": on || undefined,
      onPointerEnter: () => light(first),
      onPointerLeave: () => light(undefined),
    }),
    [on, first],
  );
}
