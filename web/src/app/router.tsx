// Addresses: `/` lists recordings, `/r/{recording}/{view}?…` is a view. The query string is `lib/search-params.ts`.
import {
  createHashHistory,
  createRootRoute,
  createRoute,
  createRouter,
  notFound,
  redirect,
} from "@tanstack/react-router";
import { IS_REPORT } from "../api/report.ts";
import { type PageSearch, readSearch, VIEWS, type View, writeSearch } from "../lib/search-params.ts";
import { Lobby } from "./lobby.tsx";
import { NotFound, Root } from "./root.tsx";
import { Shell } from "./shell.tsx";

const rootRoute = createRootRoute({ component: Root, notFoundComponent: NotFound });

const lobbyRoute = createRoute({ getParentRoute: () => rootRoute, path: "/", component: Lobby });

const recordingRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/r/$recording",
  beforeLoad: ({ params }) => {
    throw redirect({
      to: "/r/$recording/$view",
      params: { recording: params.recording, view: "overview" },
      search: {},
      replace: true,
    });
  },
});

export const viewRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/r/$recording/$view",
  params: {
    parse: ({ recording, view }): { recording: string; view: View } => ({
      recording,
      view: VIEWS.find((known) => known === view) ?? "overview",
    }),
    stringify: ({ recording, view }) => ({ recording, view }),
  },
  // A view that there is not is said, not replaced by another.
  beforeLoad: ({ location }) => {
    const view = location.pathname.split("/")[3] ?? "";
    if (!VIEWS.some((known) => known === view)) throw notFound();
  },
  // What `parseSearch` below read is already checked.
  validateSearch: (search: Record<string, unknown>): PageSearch => search as PageSearch,
  component: Shell,
});

export const router = createRouter({
  // A file has one address: its views stand behind the #.
  ...(IS_REPORT ? { history: createHashHistory() } : {}),
  routeTree: rootRoute.addChildren([lobbyRoute, recordingRoute, viewRoute]),
  parseSearch: (query) => readSearch(query) as Record<string, unknown>,
  stringifySearch: (search) => {
    const text = writeSearch(search as PageSearch);
    return text ? `?${text}` : "";
  },
  scrollRestoration: false,
  defaultPreload: false,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
