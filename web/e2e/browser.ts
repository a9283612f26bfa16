// One browser for a file of tests; every page is watched for errors, for other hosts, and for what the policy forbids.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, inject } from "vitest";
import type { RecordingSummary } from "../src/api/types.ts";

export interface OpenOptions {
  theme?: "light" | "dark";
  width?: number;
  height?: number;
  /** Another server than the tests' own. */
  server?: string;
}

interface Watched {
  page: Page;
  complaints: string[];
}

let browser: Browser;
let contexts: BrowserContext[] = [];
let watched: Watched[] = [];

export const base = (): string => inject("url");

/** Call it once in every file of tests. */
export function useBrowser(): void {
  beforeAll(async () => {
    browser = await chromium.launch({
      executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium",
      args: ["--no-sandbox", "--disable-dev-shm-usage"],
    });
  });
  afterEach(async () => {
    const complaints = watched.flatMap((one) => one.complaints);
    for (const context of contexts) await context.close();
    contexts = [];
    watched = [];
    expect(complaints).toEqual([]);
  });
  afterAll(() => browser.close());
}

/** Opens an address of the page. */
export async function open(
  path: string,
  { theme = "light", width = 1280, height = 800, server = base() }: OpenOptions = {},
): Promise<Page> {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: theme,
    reducedMotion: "reduce",
    permissions: ["clipboard-read", "clipboard-write"],
  });
  contexts.push(context);
  const page = await context.newPage();
  const complaints: string[] = [];
  const origin = new URL(server).origin;
  page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
  page.on("console", (message) => {
    // A refused request is the server's answer; tests that expect one look at the page.
    if (message.type() === "error" && !/Failed to load resource/.test(message.text()))
      complaints.push(`console: ${message.text()}`);
  });
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol.startsWith("http") && url.origin !== origin)
      complaints.push(`asked another host: ${request.url()}`);
  });
  watched.push({ page, complaints });
  await page.goto(server + path);
  return page;
}

/** Opens a file of this machine in a browser that has no network. */
export async function openFile(path: string, theme: "light" | "dark" = "light"): Promise<Page> {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 800 },
    colorScheme: theme,
    reducedMotion: "reduce",
    offline: true,
  });
  contexts.push(context);
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(`console: ${message.text()}`);
  });
  page.on("request", (request) => {
    if (!/^(file|data|blob):/.test(request.url())) complaints.push(`asked: ${request.url()}`);
  });
  watched.push({ page, complaints });
  await page.goto(`file://${path}`);
  return page;
}

/** Forgives what a test provokes on purpose. */
export function forgive(page: Page, pattern: RegExp): void {
  const one = watched.find((known) => known.page === page);
  if (one) one.complaints = one.complaints.filter((complaint) => !pattern.test(complaint));
}

export async function recordings(): Promise<RecordingSummary[]> {
  const response = await fetch(`${base()}/api/v1/recordings`);
  const body = (await response.json()) as { recordings: RecordingSummary[] };
  return body.recordings;
}

/** The recording of the program with this name; the setup records or fakes them all. */
export async function recordingOf(program: string): Promise<RecordingSummary> {
  const all = await recordings();
  const found = all.find((known) => known.name.includes(program) || known.title.includes(program));
  if (!found)
    throw new Error(
      `the server serves no recording of “${program}”, only ${all.map((known) => known.name).join(", ")}`,
    );
  return found;
}

export async function api<T>(path: string): Promise<T> {
  const response = await fetch(`${base()}/api/v1/${path}`);
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return (await response.json()) as T;
}

/** The view has its answer, and it is the newest. */
export async function settled(page: Page): Promise<void> {
  await page.waitForSelector("main.view");
  await page.waitForFunction(
    () =>
      !document.querySelector("[data-stale]") &&
      !document.querySelector("[data-refining]") &&
      !document.querySelector(".skeleton") &&
      !document.querySelector(".flame-items[data-old]") &&
      !document.querySelector(".timeline-blank"),
  );
}

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface Violation {
  id: string;
  impact: string;
  nodes: { html: string; failureSummary: string }[];
}

/** The lines, head first, of the file that a button of this name saves. */
export async function savedLines(page: Page, button = "CSV"): Promise<string[]> {
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: button }).click(),
  ]);
  return readFileSync(await download.path(), "utf8")
    .trim()
    .split("\r\n");
}

/** What axe finds that keeps people out. */
export async function seriousFaults(page: Page): Promise<string[]> {
  // Evaluated by the debugger, which no content policy hinders.
  await page.evaluate(AXE);
  const violations = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: { run: () => Promise<{ violations: unknown[] }> } };
    return (await axe.run()).violations;
  });
  return (violations as Violation[])
    .filter((violation) => ["serious", "critical"].includes(violation.impact))
    .map(
      (violation) =>
        `${violation.id}: ${violation.nodes
          .slice(0, 3)
          .map((node) => `${node.html.slice(0, 160)} ${node.failureSummary}`)
          .join(" | ")}`,
    );
}
