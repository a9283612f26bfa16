// Keys that work in every view. Views handle their own first and stop them there.
import { useEffect, useRef } from "react";
import { effectiveMetric } from "../lib/request.ts";
import { METRICS, VIEWS } from "../lib/search-params.ts";
import type { Page } from "../ui/page.ts";
import { toggleTheme } from "../ui/theme.ts";
import { VIEW_TEXT } from "./views.tsx";

/** Longest time between the g and its letter. */
const PATIENCE_MS = 1500;
const MODIFIERS: ReadonlySet<string> = new Set(["Shift", "Control", "Alt", "Meta", "AltGraph"]);

export function useShortcuts(page: Page, toggleSheet: () => void): void {
  const latest = useRef({ page, toggleSheet });
  latest.current = { page, toggleSheet };
  const asked = useRef(Number.NEGATIVE_INFINITY);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.altKey || isTyping(event.target)) return;
      if (document.querySelector("dialog[open]")) return;
      if (event.ctrlKey || event.metaKey) {
        if (event.key.toLowerCase() === "f" && focusSearch()) event.preventDefault();
        return;
      }
      if (press(event.key, latest.current.page, latest.current.toggleSheet)) event.preventDefault();
    };
    // The letter after a g is handled before keys of a view.
    const onLetter = (event: KeyboardEvent) => {
      const isBehind = event.timeStamp - asked.current < PATIENCE_MS;
      if (MODIFIERS.has(event.key)) return;
      asked.current = Number.NEGATIVE_INFINITY;
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      const view = isBehind && VIEWS.find((known) => VIEW_TEXT[known].key === event.key);
      if (view) {
        latest.current.page.go({}, { view });
        event.preventDefault();
        event.stopPropagation();
      } else if (event.key === "g" && !document.querySelector("dialog[open]")) asked.current = event.timeStamp;
    };
    window.addEventListener("keydown", onLetter, { capture: true });
    window.addEventListener("keydown", onKey);
    return () => {
      window.removeEventListener("keydown", onLetter, { capture: true });
      window.removeEventListener("keydown", onKey);
    };
  }, []);
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("input:not([type=radio]), textarea, select, [role^=menuitem]");
}

function focusSearch(): boolean {
  const field = document.querySelector<HTMLInputElement>("input[type=search]");
  field?.focus();
  field?.select();
  return field !== null;
}

/** Handles a key; returns whether it has. */
function press(key: string, page: Page, toggleSheet: () => void): boolean {
  const { search, go } = page;
  if (/^\d$/.test(key)) {
    const view = VIEWS[key === "0" ? 9 : Number(key) - 1];
    if (view) go({}, { view });
    return view !== undefined;
  }
  switch (key) {
    case "/":
      return focusSearch();
    case "?":
      toggleSheet();
      return true;
    case "p":
      go({ metric: "peak", at: undefined });
      return true;
    case "e":
      go({ metric: "live", at: undefined });
      return true;
    case "b":
      go({ unit: search.unit ? undefined : "count" });
      return true;
    case "m": {
      const now = effectiveMetric(search, page.running || page.paused);
      go({ metric: METRICS[(METRICS.indexOf(now) + 1) % METRICS.length] ?? "live" });
      return true;
    }
    case "i":
      go({ inverted: search.inverted ? undefined : true, root: undefined, open: undefined, row: undefined });
      return true;
    case "[":
    case "]":
      return goToMark(page, key === "]");
    case "t":
      toggleTheme();
      return true;
    case " ":
      if (!page.running && !page.paused) return false;
      page.setPaused(!page.paused);
      return true;
    case "Escape":
      if (search.q === undefined && search.root === undefined) return false;
      go(search.q !== undefined ? { q: undefined } : { root: undefined, open: undefined, row: undefined });
      return true;
    default:
      return false;
  }
}

/** The next mark after the chosen instant, or the one before. */
function goToMark(page: Page, forward: boolean): boolean {
  const at = page.search.at ?? (forward ? -1 : page.endNs + 1);
  const marks = [...(page.info?.marks ?? [])].sort((a, b) => a.t_ns - b.t_ns);
  const next = forward ? marks.find((mark) => mark.t_ns > at) : marks.findLast((mark) => mark.t_ns < at);
  if (!next) return false;
  page.go({ at: next.t_ns, window: undefined, metric: undefined });
  return true;
}
