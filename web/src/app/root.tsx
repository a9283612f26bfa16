// Around every address: the banner of a lost server.
import { Link, Outlet } from "@tanstack/react-router";
import { Empty } from "../ui/states.tsx";
import { useServerLost } from "./connection.ts";

export function Root() {
  const lost = useServerLost();
  return (
    <>
      {lost && (
        <div className="banner" role="alert">
          The server does not respond. Start “heaptrace server” again on the same recording and port; the page goes on
          by itself.
        </div>
      )}
      <Outlet />
    </>
  );
}

export function NotFound() {
  return (
    <main className="lobby">
      <Empty title="There is no such page">
        <Link to="/">All recordings of this server</Link>
      </Empty>
    </main>
  );
}
