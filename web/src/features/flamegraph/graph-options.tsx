// How the graph is drawn, and its picture: buttons in a row, or one menu where a row has no room for them.
import { memo, useMemo } from "react";
import type { Flamegraph } from "../../api/types.ts";
import { isOfMoment } from "../../lib/moment.ts";
import { pagesOf } from "../../lib/pins.ts";
import type { PageSearch } from "../../lib/search-params.ts";
import { Button } from "../../ui/controls.tsx";
import { below, type MenuItem, useMenu } from "../../ui/menu.tsx";
import { usePage } from "../../ui/page.ts";

interface Option {
  label: string;
  title: string;
  on: boolean;
  run: () => void;
}

/** Languages whose functions an interpreter calls by means of frames of its own. */
const INTERPRETED: ReadonlySet<string> = new Set(["python", "javascript", "java"]);

/** Looked for once in each answer: every way out of a zoom leads back to one with tens of thousands of frames. */
const interpreters = new WeakMap<Flamegraph, boolean>();

function hasInterpreter(document: Flamegraph): boolean {
  let has = interpreters.get(document);
  if (has === undefined) {
    has = document.frames.some(({ language }) => INTERPRETED.has(language ?? ""));
    interpreters.set(document, has);
  }
  return has;
}

/** What the graph is called for readers of screens. */
export function nameOfGraph(document: Flamegraph): string {
  const of = document.pinned
    ? `${pagesOf(document.pin_unit)} pinned by blocks that are ${document.metric}`
    : `${document.metric} ${document.unit}`;
  return `Flame graph of ${of}${document.freeing ? " by freeing stack" : ""}`;
}

function useOptions(document: Flamegraph): Option[] {
  const { search, go, report } = usePage();
  const allFrames = search.filters?.frames === "all";
  const interpreted = useMemo(() => hasInterpreter(document), [document]);
  const option = (label: string, title: string, name: keyof PageSearch, more?: Partial<PageSearch>): Option => ({
    label,
    title,
    on: search[name] === true,
    run: () => go({ [name]: search[name] ? undefined : true, ...more }, { replace: more === undefined }),
  });
  const anew = { root: undefined };
  const options = [
    option("Inverted", "Allocating functions first, their callers below (i)", "inverted", anew),
    option("Upwards", "Grow upwards, like flames, instead of downwards", "upwards"),
    option("Collapse recursion", "Draw direct recursion as one frame", "collapse"),
  ];
  if (!report && (allFrames || interpreted))
    options.push({
      label: "Interpreter frames",
      title: "The runtime's own frames between the program's functions",
      on: allFrames,
      run: () => {
        const { frames: _, ...others } = search.filters ?? {};
        go({ filters: allFrames ? others : { ...others, frames: "all" }, ...anew });
      },
    });
  if (!report && document.metric === "freed")
    options.push(
      option(
        "By freeing stack",
        "By the stacks that freed the blocks, instead of those that allocated them",
        "freeing",
        anew,
      ),
    );
  if (!report && isOfMoment(document.metric))
    options.push({
      ...option(
        "Pinned pages",
        "Resident pages, in bytes, that only the functions below hold: a page is assigned to the innermost function below which all its blocks were allocated",
        "pinned",
        anew,
      ),
      on: document.pinned,
    });
  options.push(
    option("Table", "A table of functions beside the graph; what is selected in one is selected in the other", "split"),
  );
  return options;
}

export const GraphOptions = memo(({ document, pictures }: { document: Flamegraph; pictures: () => MenuItem[] }) => {
  const options = useOptions(document);
  const openMenu = useMenu();
  return (
    <>
      <span className="graph-options">
        {options.map(({ label, title, on, run }) => (
          <Button key={label} on={on} title={title} onClick={run}>
            {label}
          </Button>
        ))}
        <Button quiet aria-haspopup="menu" onClick={(event) => openMenu(below(event.currentTarget), pictures())}>
          Save picture
        </Button>
      </span>
      <span className="graph-menu">
        <Button
          aria-haspopup="menu"
          onClick={(event) =>
            openMenu(below(event.currentTarget), [
              ...options.map(({ label, on, run }): MenuItem => ({ label, checked: on, run })),
              "separator",
              ...pictures(),
            ])
          }
        >
          Graph <span aria-hidden="true">▾</span>
        </Button>
      </span>
    </>
  );
});
