// A stack, leaf first. Every frame has the function menu.
import { type ReactNode, useMemo } from "react";
import type { Frame } from "../api/types.ts";
import { isChosen } from "../lib/identity.ts";
import { location, shortName } from "../lib/names.ts";
import { plainTypes } from "../lib/plain-types.ts";
import { frameName, stackText } from "../lib/stack.ts";
import { Button } from "./controls.tsx";
import { useFunctionMenu } from "./function-menu.ts";
import { useLit } from "./lit.ts";
import { below, isMenuKey, useMenu } from "./menu.tsx";
import { useCopy } from "./notice.tsx";
import { usePage } from "./page.ts";

export function Stack({ stack, label }: { stack: readonly Frame[]; label: string }) {
  const { search } = usePage();
  const openMenu = useMenu();
  const functionMenu = useFunctionMenu();
  const copy = useCopy();
  if (stack.length === 0) return <p className="muted">No stack was recorded.</p>;
  const items = (frame: Frame) =>
    functionMenu({ name: frameName(frame), module: frame.module, file: frame.file, line: frame.line, stack });
  return (
    <div className="stack">
      <div className="stack-bar">
        <span className="muted">{label}</span>
        <Button quiet onClick={() => copy(stackText(stack), "the stack")}>
          Copy
        </Button>
      </div>
      <ol>
        {stack.map((frame, i) => {
          const name = frameName(frame);
          return (
            <LitLine key={i} name={name} selected={isChosen({ ...frame, name }, search.selected)}>
              <button
                type="button"
                className="frame-button"
                aria-haspopup="menu"
                title="What can be done with this function"
                onClick={(event) => openMenu(below(event.currentTarget), items(frame))}
                onContextMenu={(event) => {
                  event.preventDefault();
                  openMenu({ x: event.clientX, y: event.clientY }, items(frame));
                }}
                onKeyDown={(event) => {
                  if (!isMenuKey(event)) return;
                  event.preventDefault();
                  openMenu(below(event.currentTarget), items(frame));
                }}
              >
                <span className="mono">{shortName(plainTypes(name), 300)}</span>
                {frame.inlined && <span className="badge">inlined</span>}
                <span className="muted">
                  {[location(frame.file, frame.line), frame.module].filter(Boolean).join(" · ")}
                </span>
              </button>
            </LitLine>
          );
        })}
      </ol>
    </div>
  );
}

function LitLine({ name, selected, children }: { name: string; selected: boolean; children: ReactNode }) {
  const lit = useLit(useMemo(() => [name], [name]));
  return (
    <li data-selected={selected || undefined} {...lit}>
      {children}
    </li>
  );
}
