// A page around a component under test: no router, no server; what `go` was asked is kept.
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import type { ReactNode } from "react";
import type { PageSearch } from "../../src/lib/search-params.ts";
import { MenuProvider } from "../../src/ui/menu.tsx";
import { NoticeProvider } from "../../src/ui/notice.tsx";
import { FrameContext, type GoOptions, type Page, PageContext } from "../../src/ui/page.ts";

export interface Went {
  patch: Partial<PageSearch>;
  options: GoOptions | undefined;
}

export function renderInPage(children: ReactNode, search: PageSearch = {}) {
  const went: Went[] = [];
  const page: Page = {
    recording: {
      id: "r1",
      name: "a.dat",
      title: "a 1",
      state: "ready",
      progress: { done_bytes: 1, total_bytes: 1, events: 1, events_per_second: 0 },
      file: "as_read" as const,
      error: null,
    },
    recordings: [],
    view: "functions",
    search,
    subject: { recording: "r1", revision: 0 },
    info: undefined,
    live: undefined,
    endNs: 10e9,
    running: false,
    paused: false,
    setPaused: () => undefined,
    brushing: false,
    brush: () => undefined,
    report: undefined,
    go: (patch, options) => went.push({ patch, options }),
  };
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  const view = render(
    <QueryClientProvider client={client}>
      <NoticeProvider>
        <MenuProvider>
          <PageContext.Provider value={page}>
            <FrameContext.Provider value={page}>{children}</FrameContext.Provider>
          </PageContext.Provider>
        </MenuProvider>
      </NoticeProvider>
    </QueryClientProvider>,
  );
  return { ...view, went };
}
