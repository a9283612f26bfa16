// What jsdom lacks and the page expects of a browser.
import { cleanup } from "@testing-library/react";
import { afterEach } from "vitest";

Object.defineProperty(window, "matchMedia", {
  value: (media: string) => ({
    media,
    matches: media.includes("reduced-motion"),
    addEventListener: () => undefined,
    removeEventListener: () => undefined,
  }),
});
Object.defineProperty(globalThis, "ResizeObserver", {
  value: class {
    observe(): void {}
    unobserve(): void {}
    disconnect(): void {}
  },
});
// Without layout every element is 0 high, and a virtual table would hold no row.
Object.defineProperty(HTMLElement.prototype, "clientHeight", { get: () => 400 });
Object.defineProperty(HTMLElement.prototype, "clientWidth", { get: () => 900 });
// d3-transition reads the transform that it starts from; `null` is none.
Object.defineProperty(SVGElement.prototype, "transform", { get: () => ({ baseVal: { consolidate: () => null } }) });
Element.prototype.scrollTo = () => undefined;
HTMLElement.prototype.scrollIntoView = () => undefined;

afterEach(cleanup);
