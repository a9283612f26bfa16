// The row of views. Links, so that they open in another tab of the browser as well.
import type { MouseEvent } from "react";
import { VIEWS } from "../lib/search-params.ts";
import { usePage } from "../ui/page.ts";
import { NOT_IN_REPORTS, VIEW_TEXT } from "./views.tsx";

export function ViewTabs() {
  const { view, search, go, href, report } = usePage();
  const shown = VIEWS.filter(
    (name) =>
      (name !== "source" || view === "source" || search.file !== undefined) && !(report && NOT_IN_REPORTS.has(name)),
  );
  const follow = (event: MouseEvent, to: (typeof VIEWS)[number]) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    go({}, { view: to });
  };
  return (
    <nav className="tabs" aria-label="Views">
      {shown.map((name) => (
        <a
          key={name}
          href={href({}, { view: name })}
          aria-current={name === view ? "page" : undefined}
          title={VIEW_TEXT[name].hint}
          onClick={(event) => follow(event, name)}
        >
          {VIEW_TEXT[name].label}
        </a>
      ))}
    </nav>
  );
}
