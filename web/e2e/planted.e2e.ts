// The first screen of programs with one planted fault each: it names the function, and says nothing that is wrong.
import { spawnSync } from "node:child_process";
import { rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { open, settled, useBrowser } from "./browser.ts";
import { serveOwn } from "./own-server.ts";

useBrowser();
const real = test.skipIf(inject("mock"));
const folder = inject("folder");
const program = join(folder, "planted");

/** The fault, who is to blame, what the finding about it says, and what no finding may say. */
const FAULTS = [
  ["stopped", "session_open", /session_open: none of \d+ blocks was ever freed/, /keeps growing|malloc_trim|pinned/],
  ["cache", "cache_insert", /cache_insert keeps growing, and is freed only at exit/, /none of|malloc_trim|pinned/],
  ["temporary", "format_line", /of all allocations are temporary.*format_line makes/, /keeps growing|none of|pinned/],
  ["pins", "index_entry", /pinned by index_entry/, /keeps growing/],
  ["thread", "log_line", /log_line keeps growing.*thread “collector”/, /none of|malloc_trim|pinned/],
] as const;

const recording = (fault: string): string => join(folder, `memory-planted-${fault}.dat`);
let server: Awaited<ReturnType<typeof serveOwn>> | undefined;

beforeAll(async () => {
  if (inject("mock")) return;
  const source = resolve(import.meta.dirname, "../../tests/programs/planted.c");
  expect(spawnSync("gcc", ["-g", "-O1", source, "-o", program, "-lpthread"]).status).toBe(0);
  const LD_PRELOAD = join(folder, "libtracehound.so");
  for (const [fault] of FAULTS) {
    const env = { ...process.env, LD_PRELOAD, TRACEHOUND_OUTPUT: recording(fault) };
    expect(spawnSync(program, [fault], { env }).status).toBe(0);
  }
  const files = FAULTS.map(([fault]) => recording(fault));
  server = await serveOwn(files);
});

afterAll(() => {
  server?.end();
  for (const path of FAULTS.flatMap(([fault]) => [recording(fault), `${recording(fault)}.idx`]).concat(program))
    rmSync(path, { recursive: true, force: true });
});

real.each(FAULTS)("%s: the first screen names %s", async (fault, blamed, right, wrong) => {
  const at = FAULTS.findIndex(([known]) => known === fault) + 1;
  const page = await open(`/r/r${at}/overview`, { server: server?.url, width: 1440, height: 900 });
  await settled(page);
  const findings = page.locator(".findings li");
  await expect.poll(() => findings.allTextContents(), { timeout: 20_000 }).toContainEqual(expect.stringMatching(right));
  const texts = await findings.allTextContents();
  for (const text of texts) expect(text).not.toMatch(wrong);
  // Without a click and without scrolling.
  const seen = findings.filter({ hasText: blamed }).first();
  const box = await seen.boundingBox();
  expect((box?.y ?? 9999) + (box?.height ?? 0)).toBeLessThanOrEqual(900);
});
