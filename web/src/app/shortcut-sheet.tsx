// What the keyboard can do.
import { useEffect, useRef } from "react";
import { VIEWS } from "../lib/search-params.ts";
import { Button } from "../ui/controls.tsx";
import { VIEW_TEXT } from "./views.tsx";

const SHEET: readonly { heading: string; keys: readonly (readonly [string, string])[] }[] = [
  {
    heading: "Everywhere",
    keys: [
      ["1 … 9, 0", "first to tenth view"],
      ["g + letter", VIEWS.map((view) => `${VIEW_TEXT[view].key} ${VIEW_TEXT[view].label}`).join(", ")],
      ["/", "search"],
      ["Esc", "clear the search; zoom out"],
      ["p", "peak of the window"],
      ["e", "end of the window"],
      ["b", "bytes or blocks"],
      ["m", "next metric"],
      ["[ ]", "mark before, mark after"],
      ["t", "light or dark"],
      ["Space", "pause or follow a running recording"],
      ["?", "this sheet"],
    ],
  },
  {
    heading: "Timeline",
    keys: [
      ["drag", "choose a window; every view follows"],
      ["click", "choose an instant"],
      ["Enter", "keep the window and show it in full"],
      ["wheel, + −", "zoom"],
      ["Shift + drag", "move sideways"],
      ["double click", "the whole recording"],
      ["← →", "move the window or the instant"],
      ["Shift + ← →", "widen or narrow the window"],
      ["Page", "move what is shown"],
      ["A B", "compare from here, to here"],
      ["Esc", "drop the window"],
    ],
  },
  {
    heading: "Flame graph",
    keys: [
      ["w s, + −", "zoom in, out"],
      ["0", "the whole width"],
      ["a d, Shift + arrows", "move what is seen"],
      ["drag, Ctrl + wheel", "move, zoom"],
      ["n N", "next match, match before (anywhere)"],
      ["p, Shift + click", "keep the frame's numbers on the screen"],
      ["Ctrl + c", "copy the stack"],
      ["m M", "merge the function, this call only"],
      ["f F", "focus on the function, on this subtree"],
      ["I", "focus on the function, inverted"],
      ["c C", "collapse the function, its module"],
      ["r R", "collapse its recursion, direct recursion"],
      ["D", "drop stacks with the function"],
    ],
  },
  {
    heading: "Flame graph and call tree",
    keys: [
      ["↑ ↓", "caller, callee"],
      ["← →", "neighbour; close and open a line of the tree"],
      ["Enter", "zoom in"],
      ["Backspace, Esc", "zoom out"],
      ["i", "invert: callees first"],
      ["*", "open all lines (call tree)"],
      ["c", "copy the stack (call tree)"],
      ["Shift + F10", "menu"],
    ],
  },
  {
    heading: "Tables",
    keys: [
      ["↑ ↓, Page, Home, End", "move"],
      ["Enter", "open"],
      ["Shift + click, Shift + Enter on a header", "sort by it in addition"],
      ["Shift + F10", "menu"],
    ],
  },
  {
    heading: "SQL",
    keys: [["Ctrl + Enter, Cmd + Enter", "run the query"]],
  },
];

export function ShortcutSheet({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} className="sheet" aria-labelledby="sheet-title" onClose={close}>
      <header>
        <h2 id="sheet-title">Keyboard and mouse</h2>
        <Button onClick={() => dialog.current?.close()}>Close</Button>
      </header>
      <div className="sheet-columns">
        {SHEET.map((part) => (
          <section key={part.heading}>
            <h3>{part.heading}</h3>
            <dl>
              {part.keys.map(([key, what]) => (
                <div key={key}>
                  <dt>
                    <kbd>{key}</kbd>
                  </dt>
                  <dd>{what}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </dialog>
  );
}
