// @vitest-environment jsdom
import { cleanup, render } from "@testing-library/react";
import { memo } from "react";
import { afterEach, expect, test } from "vitest";
import { FrameContext, type Page, PageContext, PageSource, usePage } from "../../src/ui/page.ts";

afterEach(cleanup);

/** As much of a page as is read here. */
const pageAt = (root: number | undefined): Page => ({ search: root === undefined ? {} : { root } }) as unknown as Page;

test("what reads the page without the view's own place is not drawn anew when that changes", () => {
  const drawn = { inside: 0, frame: 0 };
  const Inside = memo(() => {
    drawn.inside += 1;
    return <b>{usePage().search.root}</b>;
  });
  const Around = memo(() => {
    drawn.frame += 1;
    return <i>{usePage().search.root ?? "none"}</i>;
  });
  const frame = pageAt(undefined);
  const shell = (root: number) => (
    <PageContext.Provider value={pageAt(root)}>
      <FrameContext.Provider value={frame}>
        <Inside />
        <PageSource.Provider value={FrameContext}>
          <Around />
        </PageSource.Provider>
      </FrameContext.Provider>
    </PageContext.Provider>
  );
  const { container, rerender } = render(shell(1));
  rerender(shell(2));
  expect(container.textContent).toBe("2none");
  expect(drawn).toEqual({ inside: 2, frame: 1 });
});
