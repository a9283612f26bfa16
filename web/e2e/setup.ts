// Which servers the tests talk to.
// `url`: serves recordings of the programs beside this file, made here with the built recorder (HEAPTRACE and
// TRACEHOUND_LIBRARY name it, else target/release). `given`: any server that runs (HEAPTRACE_URL), else the same.
// HEAPTRACE_MOCK=1: both are the mock API behind the built page, for work on the page alone.
// HEAPTRACE_PAGE=dist: the page of web/dist before those servers, instead of the one that was built into heaptrace.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type ProxyOptions, preview } from "vite";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  interface ProvidedContext {
    url: string;
    given: string;
    mock: boolean;
    /** The running program, to be ended by the test that is about its end; 0 with the mock API. */
    steady: number;
    /** Where the recordings lie, and the program that reads them; empty with the mock API. */
    folder: string;
    heaptrace: string;
  }
}

const HERE = import.meta.dirname;
const TARGET = resolve(HERE, "../../target/release");

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const mock = process.env["HEAPTRACE_MOCK"] === "1";
  project.provide("folder", "");
  project.provide("heaptrace", "");
  const server = await (mock ? serveMock() : recordAndServe(project));
  const given = process.env["HEAPTRACE_URL"]?.replace(/\/$/, "") ?? server.url;
  if (process.env["HEAPTRACE_PAGE"] === "dist" && !mock) {
    const fronts = await Promise.all([serveDist(server.url), serveDist(given)]);
    project.provide("url", fronts[0].url);
    project.provide("given", fronts[1].url);
    project.provide("mock", mock);
    project.provide("steady", server.steady);
    return async () => {
      for (const front of fronts) await front.end();
      await server.end();
    };
  }
  project.provide("url", server.url);
  project.provide("given", given);
  project.provide("mock", mock);
  project.provide("steady", server.steady);
  return server.end;
}

interface Running {
  url: string;
  steady: number;
  end: () => Promise<void>;
}

const serveMock = (): Promise<Running> => servePage({});

/** The built page, with a server's answers. */
const serveDist = (api: string): Promise<Running> =>
  servePage({ "/api": { target: api, headers: { host: new URL(api).host } } });

async function servePage(proxy: Record<string, ProxyOptions>): Promise<Running> {
  if (!existsSync(resolve(HERE, "../dist/index.html"))) throw new Error("build the page first: npm run build");
  const plugins = Object.keys(proxy).length > 0 ? { plugins: [], configFile: false as const } : {};
  const server = await preview({
    ...plugins,
    root: resolve(HERE, ".."),
    preview: { port: 0, strictPort: false, host: "127.0.0.1", proxy },
  });
  const address = server.resolvedUrls?.local[0];
  if (!address) throw new Error("the preview has no address");
  return { url: address.replace(/\/$/, ""), steady: 0, end: () => server.close() };
}

async function recordAndServe(project: TestProject): Promise<Running> {
  const heaptrace = process.env["HEAPTRACE"] ?? join(TARGET, "heaptrace");
  const library = process.env["TRACEHOUND_LIBRARY"] ?? join(TARGET, "libtracehound.so");
  for (const file of [heaptrace, library]) {
    if (!existsSync(file)) throw new Error(`${file} is missing: “make build” makes it; HEAPTRACE_MOCK=1 does without.`);
  }
  // Pictures show paths: the guide names a folder that says nothing of this machine.
  const named = process.env["HEAPTRACE_FOLDER"];
  const folder = named ?? mkdtempSync(join(tmpdir(), "heaptrace-e2e-"));
  if (named) mkdirSync(named);
  const children: ChildProcess[] = [];
  const end = async () => {
    for (const child of children) child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  };
  project.provide("folder", folder);
  project.provide("heaptrace", heaptrace);
  try {
    // A copy: the next build may replace the library under a running program.
    const preloaded = join(folder, "libtracehound.so");
    copyFileSync(library, preloaded);
    const file = (program: string) => join(folder, `memory-${program}.dat`);
    const recorded = (program: string) => ({ ...process.env, LD_PRELOAD: preloaded, TRACEHOUND_OUTPUT: file(program) });
    compile(folder);
    for (const program of ["shop", "empty", "marked"]) run(join(folder, program), [], recorded(program));
    // The shop after a change, to be compared with.
    run(join(folder, "shop"), ["after"], recorded("bazaar"));
    const steady = spawn(join(folder, "steady"), { env: recorded("steady"), stdio: "ignore" });
    children.push(steady);
    await waitFor(() => existsSync(file("steady")), "the running program's recording");
    const files = ["shop", "empty", "steady", "bazaar", "marked"].map(file);
    const server = spawn(heaptrace, ["server", ...files, "--port", "0"], {
      cwd: folder,
      stdio: ["ignore", "pipe", "pipe"],
    });
    children.push(server);
    let said = "";
    for (const stream of [server.stdout, server.stderr]) stream.on("data", (part: Buffer) => (said += part.toString()));
    const address = () => /http:\/\/[0-9.:]+[0-9]/.exec(said)?.[0];
    await waitFor(() => address() !== undefined || server.exitCode !== null, "the server's address");
    const url = address();
    if (!url) throw new Error(`the server printed no address:\n${said}`);
    return { url, steady: steady.pid ?? 0, end };
  } catch (error) {
    await end();
    throw error;
  }
}

/** Compiles the programs; functions of `hostile.c` get names that no compiler would give them. */
function compile(folder: string): void {
  const source = (name: string) => {
    const copy = join(folder, `${name}.c`);
    copyFileSync(join(HERE, "programs", `${name}.c`), copy);
    return copy;
  };
  const flags = ["-O1", "-fno-inline", "-fno-optimize-sibling-calls"];
  const hostile = join(folder, "hostile.o");
  const longName = `${"std::vector<std::pair<int, long>, ".repeat(300)}>::push`;
  run("gcc", [...flags, "-c", source("hostile"), "-o", hostile]);
  const shop = join(folder, "shop.o");
  run("gcc", ["-g", ...flags, "-c", source("shop"), "-o", shop]);
  for (const object of [hostile, shop]) {
    const rename = [
      "--redefine-sym",
      "hostile_markup=<img src=x onerror=window.hacked=1>",
      "--redefine-sym",
      `long_name=${longName}`,
    ];
    run("objcopy", [...rename, object]);
  }
  run("gcc", [shop, hostile, "-o", join(folder, "shop"), "-lpthread"]);
  const include = resolve(HERE, "../../preload/include");
  for (const name of ["empty", "steady", "marked"])
    run("gcc", ["-g", ...flags, "-I", include, source(name), "-o", join(folder, name)]);
}

function run(command: string, args: string[], env: NodeJS.ProcessEnv = process.env): void {
  const result = spawnSync(command, args, { env, encoding: "utf8" });
  if (result.status !== 0)
    throw new Error(
      `${command} ${args.join(" ").slice(0, 200)} gave ${result.status}: ${result.stderr}${result.error ?? ""}`,
    );
}

async function waitFor(ready: () => boolean | Promise<boolean>, what: string): Promise<void> {
  for (let i = 0; i < 200; i += 1) {
    if (await ready()) return;
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error(`waited 20 s for ${what} in vain`);
}
