// Firefox, driven by WebDriver BiDi. Playwright drives only a Firefox of its own, so this is puppeteer.
import puppeteer, { type Browser, type Page } from "puppeteer-core";
import { afterAll, beforeAll, expect } from "vitest";
import { base } from "./browser.ts";

let browser: Browser;
let dark: Browser;

const launch = (theme: "light" | "dark") =>
  puppeteer.launch({
    browser: "firefox",
    executablePath: process.env["FIREFOX"] ?? "/usr/bin/firefox-esr",
    headless: true,
    timeout: 90_000,
    protocolTimeout: 90_000,
    extraPrefsFirefox: {
      // 0: dark, 1: light.
      "layout.css.prefers-color-scheme.content-override": theme === "dark" ? 0 : 1,
      "ui.prefersReducedMotion": 1,
    },
  });

/** Call it once in a file of tests. */
export function useFirefox(): void {
  beforeAll(async () => {
    [browser, dark] = await Promise.all([launch("light"), launch("dark")]);
  }, 180_000);
  afterAll(() => Promise.all([browser.close(), dark.close()]));
}

/** Opens an address of the page, does something there, and finds no error in its console. */
export async function inFirefox(
  path: string,
  { theme = "light" as "light" | "dark", width = 1280 },
  act: (page: Page) => Promise<void>,
): Promise<void> {
  const page = await (theme === "dark" ? dark : browser).newPage();
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(`error: ${error instanceof Error ? error.message : String(error)}`));
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(`console: ${message.text()}`);
  });
  try {
    await page.setViewport({ width, height: 800 });
    await page.goto(base() + path);
    await answered(page);
    await act(page);
    expect(complaints).toEqual([]);
  } finally {
    await page.close();
  }
}

/** The view has its answer, and it is the newest. */
export async function answered(page: Page): Promise<void> {
  await page.waitForSelector("main.view");
  await page.waitForFunction(
    () =>
      !document.querySelector("[data-stale], .skeleton, .timeline-blank, .flame-items[data-old], .state[role=status]"),
    { timeout: 30_000 },
  );
}
