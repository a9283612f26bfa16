// What can be done with a function, the same in every view.
import { useMemo } from "react";
import type { Frame } from "../api/types.ts";
import { identityOf, patternOf } from "../lib/identity.ts";
import { location } from "../lib/names.ts";
import { moduleNamed, withPattern } from "../lib/pattern.ts";
import type { FilterName } from "../lib/search-params.ts";
import { allocatedBy, frameName, stackText } from "../lib/stack.ts";
import type { MenuItem } from "./menu.tsx";
import { useCopy } from "./notice.tsx";
import { usePage } from "./page.ts";

interface MenuSubject {
  name: string;
  module?: string | null | undefined;
  file?: string | null | undefined;
  line?: number | null | undefined;
  /** Leaf first. */
  stack?: readonly Frame[] | undefined;
}

/** Items for a context menu on a function. */
export function useFunctionMenu(): (subject: MenuSubject) => MenuItem[] {
  const { go, search, view, report } = usePage();
  const copy = useCopy();
  return useMemo(() => {
    const filter = (name: FilterName, value: string) => () =>
      go({ filters: { ...search.filters, [name]: value }, root: undefined });
    // They add up: each choice has a chip of its own.
    const also = (name: "focus" | "ignore" | "hide", value: string) =>
      filter(name, withPattern(search.filters?.[name], value));
    return ({ name, module, file, line, stack }: MenuSubject): MenuItem[] => {
      const chosen = identityOf({ name, module, file });
      const pattern = patternOf(chosen);
      const items: MenuItem[] = [
        { label: "Copy function name", run: () => copy(name, "the function name") },
        ...(stack && stack.length > 0
          ? [{ label: "Copy stack", hint: "c", run: () => copy(stackText(stack), "the stack") } satisfies MenuItem]
          : []),
        {
          label: "Copy link to this view",
          run: () => copy(window.location.href, "the link to this view"),
        },
        "separator",
        {
          label: "Highlight in every view",
          run: () => go({ selected: search.selected === chosen ? undefined : chosen }, { replace: true }),
        },
        ...(view === "functions"
          ? []
          : [
              {
                label: "Show in functions",
                run: () => go({ q: pattern, by: "function", selected: chosen }, { view: "functions" }),
              } satisfies MenuItem,
            ]),
        {
          label: "Callers and callees (sandwich)",
          run: () => go({ sandwich: chosen, root: undefined, selected: chosen }, { view: "flamegraph" }),
        },
        ...(file && !report
          ? [
              {
                label: "Source",
                hint: location(file, line),
                run: () => go({ file, line: line ?? undefined }, { view: "source" }),
              } satisfies MenuItem,
            ]
          : []),
      ];
      if (!report) {
        items.push(
          "separator",
          { label: "Focus: only stacks with it", run: also("focus", pattern) },
          { label: "Ignore: only stacks without it", run: also("ignore", pattern) },
          { label: "Hide it in stacks", run: also("hide", pattern) },
          { label: "Show from it on", run: filter("show_from", pattern) },
        );
      }
      if (module && !report) {
        items.push("separator");
        items.push({ label: `Only stacks through ${module}`, run: filter("module", moduleNamed(module)) });
      }
      if (file) {
        items.push({
          label: "Copy source location",
          run: () => copy(line ? `${file}:${line}` : file, "the source location"),
        });
      }
      return items;
    };
  }, [go, search.filters, search.selected, view, copy, report]);
}

/** The menu items of the allocating function, below the items that a menu has already. */
export function allocatorMenu(stack: readonly Frame[], menu: (subject: MenuSubject) => MenuItem[]): MenuItem[] {
  const { by } = allocatedBy(stack);
  return by ? ["separator", ...menu({ name: frameName(by), ...by, stack })] : [];
}
