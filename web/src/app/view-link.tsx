// A link to another view. By itself it is drawn anew with each step in the view, which changes where it leads; what is
// around it is not.
import type { ReactNode } from "react";
import type { View } from "../lib/search-params.ts";
import { useHref } from "../ui/page.ts";

interface ViewLinkProps {
  view: View;
  className: string;
  kind: "done" | "warn" | "bad";
  title?: string;
  children: ReactNode;
}

export function ViewLink({ view, className, kind, title, children }: ViewLinkProps) {
  const href = useHref();
  return (
    <a className={className} data-kind={kind} href={href({}, { view })} title={title}>
      {children}
    </a>
  );
}
