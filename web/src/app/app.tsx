// The page's outermost layer: queries, routes, menus, notices.
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { MenuProvider } from "../ui/menu.tsx";
import { NoticeProvider } from "../ui/notice.tsx";
import { queryClient } from "./connection.ts";
import { router } from "./router.tsx";

export function App() {
  return (
    <QueryClientProvider client={queryClient}>
      <NoticeProvider>
        <MenuProvider>
          <RouterProvider router={router} />
        </MenuProvider>
      </NoticeProvider>
    </QueryClientProvider>
  );
}
