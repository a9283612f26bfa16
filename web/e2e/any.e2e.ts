// Any recording of any server (HEAPTRACE_URL): the page opens it, and its numbers are the server's.
import { expect, inject, test } from "vitest";
import type { Info, Leaks, Recordings } from "../src/api/types.ts";
import { open, settled, useBrowser } from "./browser.ts";

useBrowser();

const given = inject("given");

test("every recording that can be opened: overview, flame graph, functions, leaks", async () => {
  const ask = async <T>(path: string): Promise<T> => (await (await fetch(`${given}/api/v1/${path}`)).json()) as T;
  const { recordings } = await ask<Recordings>("recordings");
  const ready = recordings.filter((recording) => recording.state === "ready");
  expect(ready.length).toBeGreaterThan(0);
  const page = await open("/", { server: given });
  for (const { id, name } of ready) {
    const info = await ask<Info>(`recordings/${id}`);
    if (info.allocations.count === 0) continue;
    await page.goto(`${given}/r/${id}/overview`);
    await settled(page);
    expect(await page.locator("[data-fact=allocations] .fact-value").getAttribute("title"), name).toContain(
      info.allocations.count.toLocaleString("en-US"),
    );
    await page.goto(`${given}/r/${id}/flamegraph?metric=allocated`);
    await settled(page);
    await expect.poll(() => page.locator(".flame-chart .frame").count(), { message: name }).toBeGreaterThan(1);
    await page.goto(`${given}/r/${id}/functions?metric=allocated`);
    await settled(page);
    await expect.poll(() => page.locator(".table-body [role=row]").count(), { message: name }).toBeGreaterThan(0);
    const leaks = await ask<Leaks>(`recordings/${id}/leaks?builtin_suppressions=true`);
    await page.goto(`${given}/r/${id}/leaks`);
    await settled(page);
    if (leaks.sites.length > 0) {
      expect(Number(await page.locator("[data-testid=leaked] [data-exact]").getAttribute("data-exact")), name).toBe(
        leaks.leaked.bytes,
      );
    }
  }
});
