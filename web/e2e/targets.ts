// Which things to press are too small for a finger, as WCAG 2.5.8 counts it: 24 by 24 pixels, or as much room around.
import type { Page } from "playwright-core";

/** The smallest that is large enough, in CSS pixels. */
const LEAST = 24;

/** What is smaller inside of `within`, with its size; words in running text and what is larger than its own box (a label) count as they look. */
export function smallTargets(page: Page, within = "body"): Promise<string[]> {
  const limits = { least: LEAST, within };
  return page.evaluate(({ least, within }) => {
    interface Box {
      left: number;
      top: number;
      right: number;
      bottom: number;
    }
    const SELECTOR = "a[href], button, input, select, textarea, summary, [role=button], [role=menuitem], [role=tab]";

    /** What of an element is not cut off by something around it that scrolls. */
    const seen = (element: Element): Box => {
      const box: Box = element.getBoundingClientRect();
      let { left, top, right, bottom } = box;
      for (let around = element.parentElement; around; around = around.parentElement) {
        const style = getComputedStyle(around);
        if (style.overflowX === "visible" && style.overflowY === "visible") continue;
        if (around === document.documentElement || around === document.body) break;
        const outer = around.getBoundingClientRect();
        left = Math.max(left, outer.left);
        right = Math.min(right, outer.right);
        top = Math.max(top, outer.top);
        bottom = Math.min(bottom, outer.bottom);
      }
      return { left, top, right, bottom };
    };
    const isWhole = (element: Element): boolean => {
      const box = element.getBoundingClientRect();
      const part = seen(element);
      const near = (one: number, other: number) => Math.abs(one - other) < 1;
      return (["left", "top", "right", "bottom"] as const).every((side) => near(box[side], part[side]));
    };
    /** A link among the words of a sentence: other words stand before or behind it on its line. */
    const isInText = (element: Element): boolean => {
      if (getComputedStyle(element).display !== "inline") return false;
      const block = element.closest("p, li, td, dd, h2, h3, figcaption");
      const own = (element.textContent ?? "").trim();
      const all = (block?.textContent ?? "").trim();
      return block !== null && block.tagName !== "TD" && all.length > own.length + 8;
    };
    const targets = [...document.querySelectorAll<HTMLElement>(SELECTOR)]
      .filter((one) => one.closest(within))
      .filter((one) => {
        if (!one.checkVisibility({ visibilityProperty: true }) || one.closest("[inert], .skip-links, .flame-items"))
          return false;
        if ("disabled" in one && one.disabled) return false;
        const box = one.getBoundingClientRect();
        return box.width > 1 && box.height > 1 && isWhole(one) && !isInText(one);
      })
      .map((one) => {
        // A switch is pressed by its label, too.
        const label = one instanceof HTMLInputElement && /radio|checkbox/.test(one.type) ? one.closest("label") : null;
        return { one, box: (label ?? one).getBoundingClientRect() };
      });
    const isSmall = ({ box }: { box: DOMRect }) => box.width < least - 0.01 || box.height < least - 0.01;
    const middle = ({ box }: { box: DOMRect }): [number, number] => [
      (box.left + box.right) / 2,
      (box.top + box.bottom) / 2,
    ];
    const faults = targets.filter(isSmall).filter((small) => {
      const [x, y] = middle(small);
      return targets.some((other) => {
        if (other === small || other.one.contains(small.one) || small.one.contains(other.one)) return false;
        if (isSmall(other)) {
          const [otherX, otherY] = middle(other);
          return Math.hypot(x - otherX, y - otherY) < least;
        }
        const dx = Math.max(other.box.left - x, 0, x - other.box.right);
        const dy = Math.max(other.box.top - y, 0, y - other.box.bottom);
        return Math.hypot(dx, dy) < least / 2;
      });
    });
    const texts = faults.map(({ one, box }) => {
      const name = (one.getAttribute("aria-label") ?? one.textContent ?? "").trim().slice(0, 24);
      const kind = [one.tagName.toLowerCase(), ...one.classList].join(".");
      return `${kind} “${name}” ${Math.round(box.width * 10) / 10}×${Math.round(box.height * 10) / 10}`;
    });
    // One of a kind is enough to mend it.
    const kinds = new Map(texts.map((text) => [text.replace(/“.*”.*/, ""), text]));
    return [...kinds.values()];
  }, limits);
}
