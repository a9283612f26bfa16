// A link to a view with part of the page's state changed.
import type { MouseEvent, ReactNode } from "react";
import { type GoOptions, useHref, usePage } from "../../ui/page.ts";

interface PageLinkProps {
  patch: Parameters<ReturnType<typeof usePage>["go"]>[0];
  view: NonNullable<GoOptions["view"]>;
  children: ReactNode;
}

export function PageLink({ patch, view, children }: PageLinkProps) {
  const { go } = usePage();
  const href = useHref();
  const follow = (event: MouseEvent) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    go(patch, { view });
  };
  return (
    <a href={href(patch, { view })} onClick={follow}>
      {children}
    </a>
  );
}
