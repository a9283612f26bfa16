// The row of views, and a menu of those for which it has no room. Links, so that they open in another tab of the browser
// as well.
import { type MouseEvent, type RefObject, useLayoutEffect, useRef, useState } from "react";
import { VIEWS, type View } from "../lib/search-params.ts";
import { below, useMenu } from "../ui/menu.tsx";
import { useHref, usePage } from "../ui/page.ts";
import { NOT_IN_REPORTS, VIEW_TEXT } from "./views.tsx";

export function ViewTabs() {
  const { view, search, go, report } = usePage();
  const href = useHref();
  const openMenu = useMenu();
  const nav = useRef<HTMLElement>(null);
  const shown = VIEWS.filter(
    (name) =>
      (name !== "source" || view === "source" || search.file !== undefined) && !(report && NOT_IN_REPORTS.has(name)),
  );
  const fit = useFitting(nav, `${shown.length} ${view}`);
  const rest = shown.slice(fit);
  const follow = (event: MouseEvent, to: View) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    go({}, { view: to });
  };
  return (
    <nav ref={nav} className="tabs" aria-label="Views" data-all={rest.length === 0}>
      <div className="tabs-row">
        {shown.map((name, i) => (
          <a
            key={name}
            href={href({}, { view: name })}
            aria-current={name === view ? "page" : undefined}
            data-hidden={i >= fit || undefined}
            title={VIEW_TEXT[name].hint}
            onClick={(event) => follow(event, name)}
          >
            {VIEW_TEXT[name].label}
          </a>
        ))}
      </div>
      <button
        type="button"
        className="tabs-more"
        aria-haspopup="menu"
        aria-current={rest.includes(view) ? "page" : undefined}
        title="Further views"
        onClick={(event) =>
          openMenu(
            below(event.currentTarget),
            rest.map((name) => ({ label: VIEW_TEXT[name].label, run: () => go({}, { view: name }) })),
          )
        }
      >
        {rest.includes(view) ? VIEW_TEXT[view].label : "More"} <span aria-hidden="true">▾</span>
      </button>
    </nav>
  );
}

/** How many links of the row have room beside the button for the others. `key` changes with what the links are. */
function useFitting(nav: RefObject<HTMLElement | null>, key: string): number {
  const [fit, setFit] = useState(Number.POSITIVE_INFINITY);
  // biome-ignore lint/correctness/useExhaustiveDependencies(key): other links have other widths
  useLayoutEffect(() => {
    const element = nav.current;
    const links = [...(element?.querySelectorAll<HTMLElement>(".tabs-row a") ?? [])];
    const more = element?.querySelector<HTMLElement>(".tabs-more");
    const [first] = links;
    if (!element || !more || !first) return;
    const measure = () => {
      const ends = links.map((link) => link.offsetLeft + link.offsetWidth - first.offsetLeft);
      const room = element.clientWidth;
      if ((ends.at(-1) ?? 0) <= room) setFit(Number.POSITIVE_INFINITY);
      else setFit(ends.filter((end) => end <= room - more.offsetWidth).length);
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    observer.observe(more);
    return () => observer.disconnect();
  }, [nav, key]);
  return fit;
}
