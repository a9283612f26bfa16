// Light or dark: the system's wish, unless the user chose. Paper is light.
import { useSyncExternalStore } from "react";
import type { Theme } from "../lib/colors.ts";
import { isPaper, listenForPaper } from "./paper.ts";

const KEY = "heaptrace.theme";
const listeners = new Set<() => void>();
const systemDark = window.matchMedia("(prefers-color-scheme: dark)");

function chosen(): Theme | undefined {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : undefined;
  } catch {
    return undefined;
  }
}

function wanted(): Theme {
  if (isPaper()) return "light";
  return chosen() ?? (systemDark.matches ? "dark" : "light");
}

let current: Theme = wanted();

function apply(theme: Theme): void {
  current = theme;
  document.documentElement.dataset["theme"] = theme;
  for (const listener of listeners) listener();
}

apply(current);
systemDark.addEventListener("change", () => apply(wanted()));
listenForPaper(() => apply(wanted()));

export function toggleTheme(): void {
  const next = current === "light" ? "dark" : "light";
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Storage may be forbidden; the choice then lasts as long as the page.
  }
  apply(next);
}

/** The theme as it is now, for what is made ready before it is drawn. */
export function themeNow(): Theme {
  return current;
}

export function useTheme(): Theme {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}

/** The value of a design token, for what is drawn on a canvas. */
export function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
