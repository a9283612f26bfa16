// Leaks that are added up apart: how much, by what, and how to have them back.
import type { Leaks } from "../../api/types.ts";
import { formatBytes, plural } from "../../lib/format.ts";
import { Button } from "../../ui/controls.tsx";
import { below, type MenuItem, useMenu } from "../../ui/menu.tsx";
import { useNotice } from "../../ui/notice.tsx";
import { usePage } from "../../ui/page.ts";

/** Adds the function to what is suppressed; it is in the address, so that Back undoes it and a link shares it. */
export function useSuppress(): (name: string) => MenuItem {
  const { search, go, report } = usePage();
  const notice = useNotice();
  return (name) => ({
    label: "Suppress: add it up separately",
    run: () => {
      if (report) {
        notice("A report has the suppressions that it was made with.");
        return;
      }
      const now = search.suppress ?? [];
      go({ suppress: now.includes(name) ? now : [...now, name], site: undefined });
    },
  });
}

/** The sum of what is suppressed; opens the list of suppressions, each of which can be taken back. */
export function Suppressed({ leaks }: { leaks: Leaks }) {
  const { search, go, report } = usePage();
  const openMenu = useMenu();
  const own = search.suppress ?? [];
  if (leaks.suppressed.count === 0 && own.length === 0 && !search.unsuppressed) return null;
  const without = (name: string) => {
    const rest = own.filter((one) => one !== name);
    go({ suppress: rest.length > 0 ? rest : undefined });
  };
  const used = leaks.suppressions ?? [];
  const items: MenuItem[] = [
    {
      heading: `${plural(leaks.suppressed.count, "block")}, ${formatBytes(leaks.suppressed.bytes)} are not in the sum`,
    },
    ...used.slice(0, 12).map(
      (one): MenuItem => ({
        label: `${one.pattern} (${one.origin})`,
        hint: `${formatBytes(one.bytes)}, ${plural(one.sites, "site")}`,
        run: () => undefined,
      }),
    ),
    ...(report
      ? []
      : [
          "separator" as const,
          ...own.map((name): MenuItem => ({ label: `Take back: ${name}`, run: () => without(name) })),
          search.unsuppressed
            ? {
                label: "Leave out what libraries keep by design, and what the server's files name",
                run: () => go({ unsuppressed: undefined }),
              }
            : {
                label: "List what libraries keep by design, and what the server's files name",
                run: () => go({ unsuppressed: true }),
              },
        ]),
  ];
  return (
    <Button
      quiet
      aria-haspopup="menu"
      data-testid="suppressed"
      title="Leaks that are added up separately, by suppression"
      onClick={(event) => openMenu(below(event.currentTarget), items)}
    >
      suppressed {formatBytes(leaks.suppressed.bytes)}
    </Button>
  );
}
